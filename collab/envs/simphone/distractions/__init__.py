"""Distractions that make a phone harder to use, on demand and by seed.

    interruptions   calls, dialogs, banners and alarms that come over what is on the screen
    slowness        screens that take their time
    layout          another order of apps, settings and menu entries; other heights, margins, sizes and colours
    words           other words for the same things, and a second language
    noise           data that no task asks about

`presets` names how much of each there is, `schedule` says when, `manner` what stays the same for an episode. All of
it follows from (task, seed, executed actions, version): nothing here keeps a state outside the phone.
"""
