"""Android Coach: several replies to each visited state, told apart by a critic of actions."""
