"""What lies on a phone: people, messages, events, notes, and where they are drawn from."""
