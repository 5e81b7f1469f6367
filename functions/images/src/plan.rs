//! Plans one image: a build request becomes part of its head, and an image with an open request is
//! due.

use sluice_model::Timestamp;
use sluice_records::image::Image;

/// Seconds until an image with an open request is due again.
pub const RECHECK_SECONDS: u64 = 300;

/// The changes of an image's cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlan {
    /// The head to write; `None` when it stays as it is.
    pub head: Option<Image>,
    /// When the image is due without a wakeup.
    pub due: Option<Timestamp>,
}

/// Returns what to write for an image with this head, which is a new one if `stored` is `No`.
/// `request` is the time of a build request, which becomes part of the head unless an earlier one
/// is open there. The head is written if it was not stored before or there is a request, also one
/// that changes nothing. The image is due again in five minutes as long as a request is open,
/// otherwise not at all.
///
/// An open request keeps its first time: requests are one until a build begins (N5, L1.2).
pub fn plan(
    image: &Image,
    stored: Stored,
    request: Option<Timestamp>,
    now: Timestamp,
) -> ImagePlan {
    let mut head = image.clone();
    if let Some(since) = request {
        head.build_requested_since.get_or_insert(since);
    }
    let due = head.build_requested_since.map(|_| now.plus_seconds(RECHECK_SECONDS));
    let changed = head != *image || stored == Stored::No || request.is_some();
    ImagePlan { head: changed.then_some(head), due }
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
        assert_eq!(
            plan(&image(), Stored::No, None, NOW),
            ImagePlan { head: Some(image()), due: None }
        );
        assert_eq!(plan(&image(), Stored::Yes, None, NOW), ImagePlan { head: None, due: None });
    }

    /// N5
    #[test]
    fn requests_are_one_until_a_build_begins() {
        let first = plan(&image(), Stored::Yes, Some(Timestamp(900)), NOW).head.unwrap();
        assert_eq!(first.build_requested_since, Some(Timestamp(900)));
        let second = plan(&first, Stored::Yes, Some(Timestamp(950)), NOW);
        assert_eq!(second.head, Some(first.clone()));
        assert_eq!(second.due, Some(NOW.plus_seconds(RECHECK_SECONDS)));
        assert_eq!(plan(&first, Stored::Yes, None, NOW).head, None);
    }
}
