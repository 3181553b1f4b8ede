"""PPO: own episodes compared with what a value model expected of each state."""
