//! Moves a branch by a push: one command of git's own protocol over HTTP, which names the branch's
//! expected commit.
//!
//! The REST API can move a branch too, but from any commit: it would restore what a user reverted
//! meanwhile. A push is refused unless the branch is at the expected commit, and it brings the
//! commits along.

use super::{GitHub, escape_path, read};
use crate::error::ForgeError;
use sluice_model::git::{BranchKey, Oid};

/// The most characters of a forge's reason.
const REASON_MAX_CHARACTERS: usize = 500;
/// The number of digits of the length that begins each line of git's protocol.
const LENGTH_DIGITS: usize = 4;

/// Moves a branch to `to`, on condition that it is at `from`, by a push of `pack`, which has the
/// objects that GitHub lacks. The caller has checked that `to` follows `from`. If git refuses the
/// push, reads the branch: at `to` is a success, another tip is [`ForgeError::HeadMoved`], and at
/// `from` is [`ForgeError::Refused`]. `Refused` without reading it if the web address is not https
/// or the repository was moved. Never retried.
pub(super) async fn fast_forward(
    github: &GitHub,
    branch: &BranchKey,
    from: &Oid,
    to: &Oid,
    pack: &[u8],
) -> Result<(), ForgeError> {
    let attempted = format!("move {branch} from {} to {}", from.short(), to.short());
    let name = format!("refs/heads/{}", branch.branch);
    let base = github.web.as_str().trim_end_matches('/');
    let url = format!("{base}/{}.git/git-receive-pack", escape_path(branch.project.name()));
    let answer = github.api.push(&url, command(&name, from, to, pack), &attempted).await?;
    let message = match push_result(&answer, &name) {
        Some(Ok(())) => return Ok(()),
        Some(Err(message)) => message,
        None => return Err(ForgeError::unknown(&attempted, "the answer says neither yes nor no")),
    };
    // The message does not reliably say whether another push was faster, so the branch is read.
    let tip = read::branch_tip(github, branch).await?.id;
    if tip == *to {
        return Ok(());
    }
    if tip != *from {
        return Err(ForgeError::HeadMoved { attempted });
    }
    Err(ForgeError::Refused { attempted, status: 422, message })
}

/// Returns the body of a push to the ref `name`: one command of git's protocol, which expects the
/// ref at `from`, and the pack.
fn command(name: &str, from: &Oid, to: &Oid, pack: &[u8]) -> Vec<u8> {
    let line = format!("{from} {to} {name}\0 report-status");
    let mut body = format!("{:04x}{line}0000", line.len() + LENGTH_DIGITS).into_bytes();
    body.extend_from_slice(pack);
    body
}

/// Parses the forge's report on a push to the ref `name`: success, or the reason for the refusal,
/// cut to 500 characters. `None` if it says neither.
fn push_result(answer: &[u8], name: &str) -> Option<Result<(), String>> {
    let lines = lines(answer);
    let cut = |why: &str| why.chars().take(REASON_MAX_CHARACTERS).collect::<String>();
    let unpacked = lines.iter().find_map(|line| line.strip_prefix("unpack "))?;
    if unpacked != "ok" {
        return Some(Err(cut(unpacked)));
    }
    lines.iter().find_map(|line| {
        if line.strip_prefix("ok ") == Some(name) {
            return Some(Ok(()));
        }
        let why = line.strip_prefix("ng ")?.strip_prefix(name)?;
        Some(Err(cut(why.trim())))
    })
}

/// Returns the texts of the packet lines of an answer up to the first invalid one, without
/// separators and line ends.
fn lines(mut rest: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    // Terminates: each round consumes at least the length field of a line.
    while let Some((digits, after)) = rest.split_at_checked(LENGTH_DIGITS) {
        let length = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let Some(length) = length else { break };
        // Shorter ones are separators.
        let text = length.saturating_sub(LENGTH_DIGITS);
        let Some((line, after)) = after.split_at_checked(text) else { break };
        if text > 0 {
            lines.push(String::from_utf8_lossy(line).trim_end().to_owned());
        }
        rest = after;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_names_where_the_branch_is_and_where_it_goes() {
        let (from, to) = (Oid("1".repeat(40)), Oid("2".repeat(40)));
        let body = String::from_utf8(command("refs/heads/main", &from, &to, b"PACK")).unwrap();
        let line = format!("{from} {to} refs/heads/main\0 report-status");
        assert_eq!(body, format!("{:04x}{line}0000PACK", line.len() + 4));
    }

    #[test]
    fn only_a_forge_that_says_so_has_moved_the_branch() {
        let name = "refs/heads/main";
        let rows: [(&str, Option<Result<(), String>>); 7] = [
            ("000eunpack ok\n0017ok refs/heads/main\n0000", Some(Ok(()))),
            (
                "000eunpack ok\n0020ng refs/heads/main declined\n0000",
                Some(Err("declined".to_owned())),
            ),
            ("0017unpack index broken0000", Some(Err("index broken".to_owned()))),
            ("000eunpack ok\n0018ok refs/heads/other\n0000", None),
            ("000eunpack ok\n", None),
            ("<html>", None),
            ("", None),
        ];
        for (answer, expected) in rows {
            assert_eq!(push_result(answer.as_bytes(), name), expected, "{answer}");
        }
    }
}
