"""Evidence: a queue of trainings and evaluations, the file that each unit leaves, and the page made of these files.

plan       arms, phases and the order of units, read from YAML; the command of each unit
record     the file of a finished unit, and what is refused: another checkpoint, another recipe
gather     from what `collab` recorded to that file
queue      does what is missing, one unit after the other or side by side
tables     rates, paired differences and tables in Markdown
page       a Jinja template, filled from the files
"""
