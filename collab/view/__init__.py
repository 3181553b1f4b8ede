"""The inspector: recorded runs as web pages on this machine, also while they are being written.

    collab view runs/first runs/marl        →  http://127.0.0.1:…/  with a one-time token

What is shown comes out of run directories and nowhere else; nothing in them is ever changed.

    roots       the runs named on the command line, each under an id that leads nowhere else
    desk        runs by id, and what was computed from them for as long as they stay as they are
    pool        readers that are open, so that memory has a bound
    spares      indices that the inspector had to build, in the user's cache folder
    links       which files of a run lead out of it, and are not read
    beside      judgements (`labelled`) and pairs (`paired`) beside a run, found by step
    inspector   every answer as a function of ids: what routes and exports ask
    answer      answers as JSON bytes
    routes      which address asks for what; `shapes/` says every answer field by field
    overview    a run in numbers, over epochs; `training` one that has runs, `learned` what became of its policies
    episodes    episodes by filter, and the three jumps
    steps       one step whole: screen, cells, vote, words that were heard, what changed, pairs
    compared    two runs on equal instances; all critics on one step
    live        events that say when a run grew
    guard       who may ask, and the headers of every answer
    static/     the pages: ES modules and style sheets as they are shipped, no build step

    export      a report: chosen episodes in one file; `packed` says what it holds, `bundle` makes its script
    markdown    the overview for a paper's appendix
    figures     every plot of it; drawn by `chart` on a `sheet`, made PNG by `raster`

A step is one query of the index and a few lines of the log, so it costs the same in a run of any size. The index is
the one that the run's writer wrote; where that is missing, damaged or another version's, the inspector builds one and
keeps it in the user's cache folder.

Everything shown was written by models and by pages: it is text, never markup. It crosses as JSON in ASCII, so lone
surrogates and control characters arrive as they were recorded, and the pages set it as text. A run that is damaged
opens with what can be read and lists what cannot.

Who may ask: only this machine unless --host says otherwise, only with the cookie that the token in the printed address
is exchanged for, only under the name and from the pages of this server. A training is shown as its epochs' runs
together: it has an overview and a list of episodes, and each episode names the run that it is in.
"""
