"""The inspector's answers, field by field: `runs` for runs and trainings, `episodes` for episodes, `step` for one step.

Every answer is one JSON object with exactly these names. None is null; each field says what it
means. Times are ISO 8601 in UTC; `_s` and `seconds` are seconds; rates and shares lie in [0, 1]. Entropies and
log-probabilities are in nats; boxes and points are in pixels of the recorded screen. Rounds, steps and epochs count
from 0. Seeds are decimal texts, for they may not fit a double. Numbers that are not finite are null.

    GET /api/runs                                             runs.RunsView
    GET /api/run/{run}                                        runs.RunView
    GET /api/run/{run}/overview?labels                        runs.RunOverview
    GET /api/run/{run}/problems                               runs.ProblemsView
    GET /api/run/{run}/episodes?…filters                      episodes.EpisodesView     by EpisodeFilter
    GET /api/run/{run}/highlights?kind&labels                 episodes.FoundStepsView   first-wrong, overruled …
    GET /api/run/{run}/search?q                               episodes.HitsView
    GET /api/run/{run}/episode?episode&labels                 episodes.EpisodeView      of runs alone, as below
    GET /api/run/{run}/step?episode&step&labels               step.StepView
    GET /api/run/{run}/final?episode                          step.ScreenView           after the last action
    GET /api/run/{run}/cell?episode&step&agent&round&labels   step.WholeCellView
    GET /api/run/{run}/screen?episode&step                    step.WholeScreenView
    GET /api/run/{run}/critics?episode&step                   step.CriticsView
    GET /api/run/{run}/picture/{sha256}                       image/webp, as it was recorded
    GET /api/run/{run}/drawn?episode&step                     image/png of the elements; step=final: the last
    GET /api/compare?a&b                                      episodes.ComparisonView   ids of runs or trainings
    GET /api/compare/episode?a&b&episode_a&episode_b&labels   episodes.EpisodePairView  ids of runs
    GET /api/live?run&run…                                    event stream of runs.GrowthView; default: all runs

    GET /                                             static/index.html; states of the page live behind the "#"
    GET /?token=…                                     sets the session's cookie and sends on to / (a "#…" is kept)
    GET /static/{file}                                files of static/ as they are; needs no session

`labels` names a label set. It defaults to the one that was trained on, else the first of `label_sets`; "" takes none.
Encode episode ids: they hold slashes and anything else. Unknown parameters are ignored. An error is {"error": "one
line"} with 400 (does not fit), 401 (no session: open the printed address again), 403 (foreign host or origin), 404 (not
there) or 410 (was there, cannot be read any more).
"""
