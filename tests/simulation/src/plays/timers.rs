//! A pipeline that a timer starts.

/// The pipeline of the timer.
pub const NIGHTLY: &str = "nightly";

/// How often the timer fires within a story, which begins at eight, and ends after twenty-four
/// minutes at the earliest and before the next day.
pub const TICKS: usize = 3;

/// That pipeline, and what runs in it. It tells nobody. Whoever plans it by a clock that is ten
/// minutes fast sees the last tick ahead, and who waits for that by one that is ten minutes slow
/// has waited for twenty-one minutes.
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
