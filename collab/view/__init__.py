"""The inspector: recorded runs as web pages on this machine, also while they are being written.

    collab view runs/first runs/marl        →  http://127.0.0.1:…/  with a one-time token

Everything shown comes from run directories, and nothing in them is ever changed.

    runs        the runs named on the command line, each under an id; success and problems of a run
    readers     open readers, so that memory has a bound, and indices that the inspector had to build
    common      links that lead out of a run and are not read; answers as JSON bytes
    labels      stored judgements and pairs beside a run, found by step
    inspector   every answer as a function of ids, for routes and exports
    server      addresses, events that report growth, and the pages; `schema/` describes answers field by field
    overview    a run in numbers, over epochs; `training` one that has runs, `metrics` its policies' training
    episodes    episodes by filter; two runs on equal instances
    search      steps on which critic, vote and outcome disagree, and places of words
    step        one step whole: screen, cells, vote, heard messages, changes, pairs
    auth        access control, and the headers of every answer
    static/     the pages: ES modules and style sheets as they are shipped, no build step

    export      a report: chosen episodes in one file
    markdown    the overview for a paper's appendix; `plots` draws its plots

A step is one query of the index and a few lines of the log, so it costs the same in a run of any size. The index is the
one that the run's writer wrote. Where it is missing, damaged or another version's, the inspector builds one in the
user's cache folder.

Everything shown was written by models and by pages: it is text, never markup. It crosses as JSON in ASCII, so lone
surrogates and control characters arrive as they were recorded, and the pages set it as text. A damaged run opens with
its readable parts and lists the others.

Only this machine has access unless --host names another address, only with the cookie for the printed one-time token,
and only under the name and from the pages of this server. A training is shown as its epochs' runs together: it has an
overview and a list of episodes, and each episode names its run.
"""
