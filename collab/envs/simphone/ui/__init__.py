"""What the phone shows: screens, their layout, and their pictures."""
