//! Computes when a timer fires: Zuul's form of cron, in UTC.
//!
//! The fields are minute, hour, day, month, weekday, and optionally second and jitter. As in
//! APScheduler, which Zuul uses, weekday 0 is Monday, and day and weekday must both match. Existing
//! cron crates count from Sunday and accept either match.

use sluice_model::Timestamp;

/// The number of days searched for the next time. A 29th of February on a given weekday occurs
/// within 40 years.
const DAYS_MAX: u64 = 41 * 366;

/// Maximum jitter in seconds: a day.
const JITTER_SECONDS_MAX: u64 = 86_400;

const SECOND_MILLIS: u64 = 1_000;
const DAY_SECONDS: u64 = 86_400;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The times at which a timer fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    /// The minutes of an hour at which it fires.
    minutes: Set,
    /// The hours of a day.
    hours: Set,
    /// The days of a month.
    days: Set,
    /// The months.
    months: Set,
    /// The days of a week, from Monday as 0.
    weekdays: Set,
    /// The seconds of a minute.
    seconds: Set,
    /// The maximum delay in seconds, drawn for each project and branch.
    pub jitter_seconds: u64,
}

/// A set of numbers below 64, and whether it contains the last day of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    /// The numbers in the set as bits.
    numbers: u64,
    /// Whether the last day of the month is in the set.
    last: bool,
}

impl Set {
    /// Returns whether the set contains a number, which must be below 64. The last day of a month
    /// is not considered.
    fn has(self, number: u64) -> bool {
        self.numbers & (1 << number) != 0
    }
}

/// The limits of a field.
struct Field {
    /// The field's name for messages.
    name: &'static str,
    /// The smallest valid number.
    least: u64,
    /// The largest valid number.
    most: u64,
    /// Words that stand for the numbers from `least` on.
    names: &'static [&'static str],
}

impl Cron {
    /// Parses a timer's `time`: minute, hour, day, month and weekday, optionally followed by second
    /// (0 by default) and jitter. The error names the wrong field and the reason. A jitter of more
    /// than a day, and a timer that never fires, are errors too.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        if !(5..=7).contains(&fields.len()) {
            return Err(
                "expected minute, hour, day, month and weekday, optionally followed by second and jitter"
                    .to_owned(),
            );
        }
        let none: &[&str] = &[];
        let read = |at: usize, name, least, most, names| {
            parse_field(fields[at], &Field { name, least, most, names })
        };
        let second = fields.get(5).copied().unwrap_or("0");
        let jitter_seconds = match fields.get(6) {
            None => 0,
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| *seconds <= JITTER_SECONDS_MAX)
                .ok_or_else(|| {
                    format!(
                        "the jitter {text} is not a number of seconds up to {JITTER_SECONDS_MAX}"
                    )
                })?,
        };
        let cron = Self {
            minutes: read(0, "minute", 0, 59, none)?,
            hours: read(1, "hour", 0, 23, none)?,
            days: read(2, "day", 1, 31, none)?,
            months: read(3, "month", 1, 12, &MONTHS)?,
            weekdays: read(4, "weekday", 0, 6, &WEEKDAYS)?,
            seconds: parse_field(
                second,
                &Field { name: "second", least: 0, most: 59, names: none },
            )?,
            jitter_seconds,
        };
        match cron.next_after(Timestamp(0)) {
            Some(_) => Ok(cron),
            None => Err("no date matches the day and the month".to_owned()),
        }
    }

    /// Returns the first full second after a point in time at which it fires, in UTC and without
    /// the jitter; `None` if there is none within about 40 years.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = after.seconds() + 1;
        for day in from / DAY_SECONDS..from / DAY_SECONDS + DAYS_MAX {
            let begin = day * DAY_SECONDS;
            if !self.is_on(begin) {
                continue;
            }
            if let Some(second) = self.within_day(from.saturating_sub(begin)) {
                return Some(Timestamp((begin + second) * SECOND_MILLIS));
            }
        }
        None
    }

    /// Returns whether month, day and weekday all match the day, in UTC, that begins at this second
    /// since 1970. The time of day is not considered.
    fn is_on(&self, begin: u64) -> bool {
        let at = Timestamp(begin * SECOND_MILLIS);
        let (_, month, day) = at.date();
        let is_last = Timestamp((begin + DAY_SECONDS) * SECOND_MILLIS).date().2 == 1;
        // The first of January 1970 was a Thursday.
        let weekday = (begin / DAY_SECONDS + 3) % 7;
        self.months.has(u64::from(month))
            && (self.days.has(u64::from(day)) || (self.days.last && is_last))
            && self.weekdays.has(weekday)
    }

    /// Returns the first second of a day, not before the second `from` of the day, at which it
    /// fires; `None` if there is none. Does not check whether it fires on that day.
    fn within_day(&self, from: u64) -> Option<u64> {
        let minutes = (0..24).filter(|hour| self.hours.has(*hour)).flat_map(|hour| {
            (0..60)
                .filter(|minute| self.minutes.has(*minute))
                .map(move |minute| hour * 3_600 + minute * 60)
        });
        minutes
            .filter(|minute| minute + 59 >= from)
            .flat_map(|minute| {
                (0..60)
                    .filter(|second| self.seconds.has(*second))
                    .map(move |second| minute + second)
            })
            .find(|second| *second >= from)
    }
}

/// Parses a field: numbers, names, ranges and steps, separated by commas; for days also `last`. A
/// step without an end, such as `5/10`, goes on to the field's greatest number. A range whose end
/// is before its start is an error. The error names the field, the wrong part and the valid range.
fn parse_field(text: &str, field: &Field) -> Result<Set, String> {
    let wrong = |part: &str| {
        format!("{part:?} is not a {} from {} to {}", field.name, field.least, field.most)
    };
    let mut set = Set { numbers: 0, last: false };
    for part in text.split(',') {
        if part == "last" && field.name == "day" {
            set.last = true;
            continue;
        }
        let (range, step) =
            part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let step: u64 = match step {
            None => 1,
            Some(step) => step.parse().ok().filter(|step| *step > 0).ok_or_else(|| wrong(part))?,
        };
        let number = |text: &str| {
            let name = field.names.iter().position(|name| name.eq_ignore_ascii_case(text));
            let number = name.map(|at| at as u64 + field.least).or_else(|| text.parse().ok());
            number
                .filter(|number| (field.least..=field.most).contains(number))
                .ok_or_else(|| wrong(part))
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (field.least, field.most),
            Some((first, last)) => (number(first)?, number(last)?),
            // A step with a start continues to the end of the range.
            None if part.contains('/') => (number(range)?, field.most),
            None => (number(range)?, number(range)?),
        };
        if first > last {
            return Err(wrong(part));
        }
        let mut at = first;
        while at <= last {
            set.numbers |= 1 << at;
            at = at.saturating_add(step);
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Thursday, the 1st of January 2026, 00:00:00.
    const NEW_YEAR: u64 = 1_767_225_600;

    fn next(text: &str, after_seconds: u64) -> String {
        let cron = Cron::parse(text).unwrap();
        cron.next_after(Timestamp(after_seconds * 1_000)).unwrap().to_iso()
    }

    /// R09, Z6.1
    #[test]
    fn a_timer_fires_at_the_times_that_it_names() {
        for (text, expected) in [
            ("0 2 * * *", "2026-01-01T02:00:00"),
            ("0 0 * * *", "2026-01-02T00:00:00"),
            ("*/15 * * * *", "2026-01-01T00:15:00"),
            ("50/4 * * * *", "2026-01-01T00:50:00"),
            ("5-20/10 3,4 * * *", "2026-01-01T03:05:00"),
            // The first weekday is Monday.
            ("0 6 * * 0", "2026-01-05T06:00:00"),
            ("0 6 * * sun", "2026-01-04T06:00:00"),
            ("0 6 * * mon-fri", "2026-01-01T06:00:00"),
            // Both day and weekday.
            ("0 0 13 * fri", "2026-02-13T00:00:00"),
            ("0 0 29 2 *", "2028-02-29T00:00:00"),
            ("0 0 last feb *", "2026-02-28T00:00:00"),
            ("0 0 * * * 30", "2026-01-01T00:00:30"),
            ("* * * * * */20", "2026-01-01T00:00:20"),
        ] {
            assert_eq!(next(text, NEW_YEAR), expected, "{text}");
        }
        assert_eq!(Cron::parse("0 0 * * * 0 300").unwrap().jitter_seconds, 300);
    }

    /// Z2.4: a time that never occurs is an error that says so.
    #[test]
    fn an_invalid_time_is_reported_by_its_field() {
        for (text, word) in [
            ("0 2 * *", "weekday"),
            ("60 2 * * *", "minute"),
            ("0 24 * * *", "hour"),
            ("0 0 0 * *", "day"),
            ("0 0 * 13 *", "month"),
            ("0 0 * * 7", "weekday"),
            ("0 0 * * moon", "weekday"),
            ("0 0 30 2 *", "no date matches"),
            ("*/0 0 * * *", "minute"),
            ("9-3 0 * * *", "minute"),
            ("last 0 * * *", "minute"),
            ("0 0 * * * 0 soon", "jitter"),
        ] {
            let said = Cron::parse(text).unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
    }

    proptest! {
        /// R09: no time is skipped, and none occurs twice.
        #[test]
        fn the_next_time_is_the_first_one_and_it_fits(after in 0_u64..4_000_000_000, minute in 0_u64..60, hour in 0_u64..24) {
            let cron = Cron::parse(&format!("{minute} {hour} * * *")).unwrap();
            let found = cron.next_after(Timestamp(after * 1_000)).unwrap().seconds();
            prop_assert!(found > after && found - after <= DAY_SECONDS);
            prop_assert_eq!(found % DAY_SECONDS, hour * 3_600 + minute * 60);
        }
    }
}
