//! Reads secrets from files or standard input; they are never arguments.

use anyhow::{Context as _, bail};
use std::io::Read as _;
use std::path::Path;

/// Reads a secret from a file, or from standard input for `-`, without final line breaks. `None`
/// without a file. An error if it is empty.
pub(crate) fn read_secret(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    let is_input = file == Path::new("-");
    if is_input {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("could not read the secret from standard input")?;
    } else {
        text = std::fs::read_to_string(file)
            .with_context(|| format!("could not read {}", file.display()))?;
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        let from = if is_input { "standard input".to_owned() } else { file.display().to_string() };
        bail!("could not read the secret: {from} is empty");
    }
    Ok(Some(text.to_owned()))
}
