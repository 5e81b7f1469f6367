//! A pipeline that tells others, and those alone, once too many changes failed in it one after the
//! other.

use super::mails::telling_by_mail;

/// That pipeline.
pub const SHAKY: &str = "shaky";

/// How many failures in a row are too many.
pub const FAILURES: u32 = 2;

/// Who is told then.
pub const OPERATORS: &str = "ops@example.org";

/// Returns the pipeline, and what runs in it.
pub fn shaky_yaml() -> String {
    let settings = format!("    disable-after-consecutive-failures: {FAILURES}\n");
    let reporters =
        format!("    disabled:\n      mail: {{to: {OPERATORS}, from: ci@example.org}}\n");
    telling_by_mail(SHAKY, "unit", &settings, &reporters)
}
