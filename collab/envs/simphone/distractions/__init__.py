"""Distractions that make a phone harder to use, on demand and by seed.

    interruptions   calls, dialogs, banners and alarms that come over what is on the screen
    looks           other words or another language; another order of apps, settings and menu entries; other measures
    presets         single knobs, slow screens and irrelevant data among them, and three settings of all of them

`presets` names how much of each there is, `schedule` says when, `manner` what stays the same for an episode. All of
it follows from (task, seed, executed actions, version): nothing here keeps a state outside the phone.
"""
