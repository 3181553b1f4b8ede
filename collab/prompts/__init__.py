"""What agents read and how their replies are read: prompt layout and reply parsing."""
