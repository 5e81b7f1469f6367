//! Encodes and decodes PEM: base64 in lines of 64 characters between two marker lines.

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

/// Encodes bytes as a PEM block with base64 lines of `columns` characters (above 0), between the
/// marker lines of `label`. The text is wiped when dropped.
pub(crate) fn write(label: &str, bytes: &[u8], columns: usize) -> Zeroizing<String> {
    let encoded = Zeroizing::new(STANDARD.encode(bytes));
    // Allocated at its exact size, because growing would leave copies in memory.
    let mut text = Zeroizing::new(String::with_capacity(
        encoded.len() + encoded.len() / columns + 2 * label.len() + 64,
    ));
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    for (index, character) in encoded.chars().enumerate() {
        if index > 0 && index % columns == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text.push_str(&format!("\n-----END {label}-----\n"));
    text
}

/// Returns label and bytes of the first PEM block in `text`; `None` when there is none, or it is
/// incomplete or not base64. Text around the block is ignored.
pub(crate) fn read(text: &str) -> Option<(String, Zeroizing<Vec<u8>>)> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN "));
    let label = lines.next()?.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?.to_owned();
    let end = format!("-----END {label}-----");
    let mut encoded = Zeroizing::new(String::with_capacity(text.len()));
    for line in lines {
        if line == end {
            return STANDARD
                .decode(encoded.as_bytes())
                .ok()
                .map(|bytes| (label, Zeroizing::new(bytes)));
        }
        encoded.push_str(line);
    }
    None
}
