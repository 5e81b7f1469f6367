//! Lists a bucket in the order of keys, a page at a time, with common prefixes rolled up.

use rusqlite::params;

use super::super::store::StoreError;
use super::store::{Object, Store, object};

/// What to list.
pub(super) struct Listing<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Empty for none.
    pub delimiter: &'a str,
    /// Everything up to here, and below it where it is a rolled-up prefix, was listed before.
    pub after: &'a str,
    /// 1 to 1000.
    pub max: usize,
}

/// One page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    pub objects: Vec<Object>,
    pub prefixes: Vec<String>,
    /// Where the next page goes on, when there is one.
    pub next: Option<String>,
}

/// Rows that are read at once.
const ROWS: usize = 1001;

impl Store {
    /// Returns one page of a bucket's objects and common prefixes, at most `max` together, which
    /// must be at least 1; each in the order of keys, beginning behind `after`. An `after` that
    /// ends with the delimiter skips everything that begins with it. `next` is the `after` of the
    /// following page; `None` on the last page. Empty for an unknown bucket.
    pub fn list(&self, listing: &Listing<'_>) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let mut position = Position::After(listing.after.to_owned());
        if !listing.delimiter.is_empty() && listing.after.ends_with(listing.delimiter) {
            position = Position::Past(listing.after.to_owned());
        }
        let mut last = String::new();
        // Every round either ends, or goes on behind a whole prefix or a full set of rows that made
        // the page longer.
        for _ in 0..=listing.max + 1 {
            let rows = self.rows(listing, &position)?;
            let ended = rows.len() < ROWS;
            let mut skipped = false;
            for row in rows {
                let rolled = rolled_up(&row.key, listing);
                if page.objects.len() + page.prefixes.len() == listing.max {
                    page.next = Some(last);
                    return Ok(page);
                }
                match rolled {
                    Some(prefix) => {
                        last.clone_from(&prefix);
                        position = Position::Past(prefix.clone());
                        page.prefixes.push(prefix);
                        skipped = true;
                        break;
                    }
                    None => {
                        last.clone_from(&row.key);
                        position = Position::After(row.key.clone());
                        page.objects.push(row);
                    }
                }
            }
            if ended && !skipped {
                break;
            }
        }
        Ok(page)
    }

    /// Reads the next objects with the prefix after a position, in the order of keys, without their
    /// bodies; at most 1001. Fewer mean that there are no more.
    fn rows(&self, listing: &Listing<'_>, position: &Position) -> Result<Vec<Object>, StoreError> {
        let connection = self.lock();
        // What begins with a prefix lies from the prefix up to the prefix followed by the highest
        // character.
        let end = format!("{}{}", listing.prefix, char::MAX);
        let (from, inclusive) = match position {
            Position::After(key) if key.as_str() >= listing.prefix => (key.clone(), false),
            Position::After(_) => (listing.prefix.to_owned(), true),
            Position::Past(prefix) => (format!("{prefix}{}", char::MAX), false),
        };
        let query = if inclusive {
            "SELECT key, etag, size, modified_ms, about FROM objects
             WHERE bucket = ?1 AND key >= ?2 AND key < ?3 ORDER BY key LIMIT ?4"
        } else {
            "SELECT key, etag, size, modified_ms, about FROM objects
             WHERE bucket = ?1 AND key > ?2 AND key < ?3 ORDER BY key LIMIT ?4"
        };
        let mut statement =
            connection.prepare_cached(query).map_err(self.failed("list a bucket"))?;
        let rows = statement.query_map(params![listing.bucket, from, end, ROWS], object);
        rows.and_then(Iterator::collect).map_err(self.failed("list a bucket"))
    }
}

enum Position {
    After(String),
    /// Behind everything that begins so.
    Past(String),
}

/// Returns the common prefix under which a key is listed: up to and with the first delimiter after
/// the listing's prefix. `None` if the key is listed by itself: the listing has no delimiter, or
/// the rest of the key does not contain it.
fn rolled_up(key: &str, listing: &Listing<'_>) -> Option<String> {
    if listing.delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(listing.prefix)?;
    let at = rest.find(listing.delimiter)?;
    Some(format!("{}{}", listing.prefix, &rest[..at + listing.delimiter.len()]))
}
