"""The inspector's answers, field by field: a module per page, named like the one that computes it.

Every answer is one JSON object with exactly these names. None is null; what it
means stands at the field. Times are ISO 8601 in UTC; `_s` and `seconds` are seconds; rates and shares lie in [0, 1];
entropies and log-probabilities are in nats; boxes and points are in pixels of the recorded screen. Rounds, steps and
epochs count from 0. Seeds are decimal texts, for they may not fit a double. Numbers that are not finite are null.

    GET /api/runs                                     runs.Runs
    GET /api/run/{run}                                runs.RunView
    GET /api/run/{run}/overview?labels                overview.Overview
    GET /api/run/{run}/problems                       runs.Problems
    GET /api/run/{run}/episodes?…filters              episodes.Episodes   (filters: `episodes.EpisodeFilter`)
    GET /api/run/{run}/finds?kind&labels              finds.Finds         kind: first-wrong, overruled, disagrees
    GET /api/run/{run}/search?q                       finds.Hits
    GET /api/run/{run}/episode?episode&labels         episodes.EpisodeView   of a run alone, as those below
    GET /api/run/{run}/step?episode&step&labels       step.StepView
    GET /api/run/{run}/final?episode                  screen.Screen       after the last action
    GET /api/run/{run}/cell?episode&step&agent&round&labels    cell.CellWhole
    GET /api/run/{run}/screen?episode&step            screen.ScreenWhole
    GET /api/run/{run}/critics?episode&step           critics.Critics
    GET /api/run/{run}/picture/{sha256}               image/webp, as it was recorded
    GET /api/run/{run}/drawn?episode&step             image/png, drawn from the recorded elements; step=final: the last
    GET /api/compare?a&b                              compared.Comparison    a and b: ids of runs or trainings
    GET /api/compare/episode?a&b&episode_a&episode_b&labels    compared.EpisodePair   a and b: ids of runs
    GET /api/live?run&run…                            text/event-stream of `runs.Growth`; without run: of all listed

    GET /                                             static/index.html; states of the page live behind the "#"
    GET /?token=…                                     sets the session's cookie and sends on to / (a "#…" is kept)
    GET /static/{file}                                files of static/ as they are; needs no session

`labels` names a label set; without it the one that was learned from is taken, else the first of `label_sets`, and ""
takes none. Episode ids hold slashes
and anything else: encode them. An answer that is an error is {"error": "one line"} with 400 (does not fit), 401 (no
session: open the printed address again), 403 (foreign host or origin), 404 (not there), 410 (was there, cannot be read
any more). Unknown parameters are ignored.
"""
