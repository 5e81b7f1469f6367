//! The decision about one image: a wish becomes part of its head, and an image with an open wish is
//! due.

use sluice_model::Timestamp;
use sluice_records::image::Image;

/// Seconds until an image with an open wish is looked at without being poked.
pub const LOOK_SECONDS: u64 = 300;

/// What an image's cell is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The head to write; `None` when it stays as it is.
    pub head: Option<Image>,
    /// When to look again without being poked.
    pub due: Option<Timestamp>,
}

/// Decides from the head (`fresh` when nothing is stored yet) and the wish that waits beside it, if
/// any.
///
/// An open wish is kept as it was first made: wishes are one until a build begins (N5, L1.2).
pub fn plan(image: &Image, stored: Stored, wish: Option<Timestamp>, now: Timestamp) -> Plan {
    let mut head = image.clone();
    if let Some(since) = wish {
        head.build_wanted_since.get_or_insert(since);
    }
    let due = head.build_wanted_since.map(|_| now.plus_seconds(LOOK_SECONDS));
    let changed = head != *image || stored == Stored::No || wish.is_some();
    Plan { head: changed.then_some(head), due }
}

/// Whether an image's head was stored before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It was.
    Yes,
    /// This is its first use.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn image() -> Image {
        Image::new("demo".into(), "debian".to_owned())
    }

    /// N1
    #[test]
    fn an_image_that_was_never_stored_is_written() {
        assert_eq!(plan(&image(), Stored::No, None, NOW), Plan { head: Some(image()), due: None });
        assert_eq!(plan(&image(), Stored::Yes, None, NOW), Plan { head: None, due: None });
    }

    /// N5
    #[test]
    fn wishes_are_one_until_a_build_begins() {
        let first = plan(&image(), Stored::Yes, Some(Timestamp(900)), NOW).head.unwrap();
        assert_eq!(first.build_wanted_since, Some(Timestamp(900)));
        let second = plan(&first, Stored::Yes, Some(Timestamp(950)), NOW);
        assert_eq!(second.head, Some(first.clone()));
        assert_eq!(second.due, Some(NOW.plus_seconds(LOOK_SECONDS)));
        assert_eq!(plan(&first, Stored::Yes, None, NOW).head, None);
    }
}
