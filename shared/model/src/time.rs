//! Points in time as milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

/// A point in time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the point `milliseconds` later.
    pub fn plus_millis(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// Returns the point `seconds` later.
    pub fn plus_seconds(self, seconds: u64) -> Self {
        self.plus_millis(seconds.saturating_mul(1_000))
    }

    /// Returns the milliseconds since `earlier`, or 0 when `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the whole seconds since the epoch.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the date in UTC as year, month and day of the month. Month and day count from 1.
    pub fn date(self) -> (i64, u32, u32) {
        let days = (self.seconds() / 86_400) as i64;
        // Civil-from-days after Howard Hinnant's published algorithm: the year starts in March.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
        let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month as u32, day as u32)
    }

    /// Returns the UTC text `YYYY-MM-DDTHH:MM:SS` that Zuul's REST API uses, without fraction and
    /// zone.
    pub fn to_iso(self) -> String {
        let (year, month, day) = self.date();
        let second_of_day = self.seconds() % 86_400;
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            second_of_day / 3_600,
            second_of_day / 60 % 60,
            second_of_day % 60
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    /// Z9.1
    #[test]
    fn times_read_as_utc_without_a_zone() {
        assert_eq!(Timestamp(0).to_iso(), "1970-01-01T00:00:00");
        assert_eq!(Timestamp(951_782_400_000).to_iso(), "2000-02-29T00:00:00");
        assert_eq!(Timestamp(1_795_259_025_999).to_iso(), "2026-11-21T11:03:45");
    }

    /// Z9.1
    #[test]
    fn dates_beside_the_end_of_a_february_are_right_in_every_kind_of_year() {
        let date = |seconds: u64| Timestamp(seconds * 1_000).date();
        assert_eq!(date(36_547_200), (1971, 2, 28));
        assert_eq!(date(36_633_600), (1971, 3, 1));
        assert_eq!(date(68_169_600), (1972, 2, 29));
        assert_eq!(date(68_256_000), (1972, 3, 1));
        assert_eq!(date(946_598_400), (1999, 12, 31));
        // A hundredth year has no leap day, a four-hundredth has one.
        assert_eq!(date(4_107_456_000), (2100, 2, 28));
        assert_eq!(date(4_107_542_400), (2100, 3, 1));
        assert_eq!(date(13_574_563_200), (2400, 2, 29));
    }
}
