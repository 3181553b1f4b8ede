"""Evidence: what is measured, unit by unit, and the tables that are made of it.

plan       arms, phases, budgets, and the order in which units are done
units      a unit: its place, its commands, its estimate
record     the file that a finished unit leaves, and what is refused
gather     from what `collab` recorded to that file
work       the queue: does what is missing
figures    from files to rates, differences and tables
curves     success over epochs, as SVG
document   docs/results.md
"""
