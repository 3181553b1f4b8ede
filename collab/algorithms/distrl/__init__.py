"""DistRL: learn remembered episodes, drawn by their priority and corrected for the policy that played them."""
