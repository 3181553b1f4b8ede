"""Teams of language-model agents that operate phones and web pages.

An epoch is rewire → play → judge → pair → train; every room of this package serves one of these verbs.
"""

__version__ = "0.1.0"
