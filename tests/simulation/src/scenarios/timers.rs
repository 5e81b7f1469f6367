//! [`super::Scenario::Timers`]: a pipeline with a timer trigger.

/// The name of the pipeline.
pub const NIGHTLY: &str = "nightly";

/// How often the timer fires within a run. A run begins at eight o'clock, lasts at least 24
/// minutes, and ends before the next day.
pub const TICKS: usize = 3;

/// The configuration of the pipeline and its jobs. It has no reporters. The last tick is at minute
/// 11: a clock that is ten minutes fast still has it ahead at the start, and a clock that is ten
/// minutes slow reaches it after 21 minutes.
pub const NIGHTLY_YAML: &str = "
- pipeline:
    name: nightly
    manager: independent
    precedence: low
    post-review: true
    trigger:
      timer:
        - time: '2,6,11 8 * * *'
- project: {name: ^org/t.*, nightly: {jobs: [quick, unit]}}
";
