"""Evidence: what is measured, unit by unit, and the tables that are made of it.

plan       arms, phases, budgets, and the order in which units are done
units      a unit: its place, its commands, what it needs first
record     the file that a finished unit leaves, and what is refused
playing    from a run's log to the time that was played, and to that in which environments were at work
gather     from what `collab` recorded to that file
recipe     whether what is there was made as the plan of today would make it
work       the queue: does what is missing, and how long that takes
figures    from files to rates, differences and tables
times      what units took, by part
goals      what was aimed at, and what came of it
reasons    what is known of goals that were missed
curves     success, and likelihood of chosen replies, over epochs, as SVG
listing    every unit: hashes, code, machines, commands
document   docs/results.md
quick      the verdict of --quick
"""
