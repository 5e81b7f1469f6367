//! Checks that a webhook's body was signed by someone who knows one of the connection's secrets.

use crate::secret::ForgeSecret;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

/// A delivery with a wrong signature. There is one form only, because the sender gets no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not accept the delivery: its signature is missing, malformed or made with another secret"
)]
pub struct Rejected;

/// Accepts `raw_body` when `signature_header` (`X-Hub-Signature-256`: `sha256=` and 64 hexadecimal
/// digits) was made with one of `secrets`. Rejects a missing or malformed header. Empty secrets do
/// not count, so that without a secret nothing is accepted.
///
/// All secrets are tried and compared in constant time, so neither time nor answer reveals a near
/// match. During a rotation `secrets` has the new and the old one.
pub fn verify(
    secrets: &[ForgeSecret],
    signature_header: Option<&str>,
    raw_body: &[u8],
) -> Result<(), Rejected> {
    let digits =
        signature_header.and_then(|header| header.strip_prefix("sha256=")).ok_or(Rejected)?;
    let mut claimed = [0_u8; 32];
    hex::decode_to_slice(digits, &mut claimed).map_err(|_| Rejected)?;
    let mut accepted = Choice::from(0);
    for secret in secrets.iter().filter(|secret| !secret.reveal().is_empty()) {
        accepted |= mac(secret, raw_body).ok_or(Rejected)?.ct_eq(&claimed);
    }
    if bool::from(accepted) { Ok(()) } else { Err(Rejected) }
}

/// Returns the header value that GitHub sends with `raw_body`: `sha256=` and 64 hexadecimal digits.
pub fn sign(secret: &ForgeSecret, raw_body: &[u8]) -> String {
    // HMAC takes keys of every length, so `None` cannot happen; an empty signature would merely be
    // rejected.
    mac(secret, raw_body).map(|mac| format!("sha256={}", hex::encode(mac))).unwrap_or_default()
}

/// Computes the HMAC-SHA-256 of a body; `None` for an unusable secret, which cannot happen.
fn mac(secret: &ForgeSecret, raw_body: &[u8]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).ok()?;
    mac.update(raw_body);
    Some(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2.2: GitHub's documented example (secret, body and signature are from its manual on
    /// validating deliveries).
    #[test]
    fn githubs_published_example_is_accepted() {
        let secret = ForgeSecret::new("It's a Secret to Everybody");
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(
            verify(std::slice::from_ref(&secret), Some(signature), b"Hello, World!"),
            Ok(())
        );
        assert_eq!(sign(&secret, b"Hello, World!"), signature);
    }

    /// C2.2
    #[test]
    fn everything_but_a_true_signature_is_rejected_alike() {
        let (new, old) = (ForgeSecret::new("new"), ForgeSecret::new("old"));
        let both = [new.clone(), old.clone()];
        let body = b"{\"zen\":\"\xff raw bytes\"}";
        let (by_new, by_old, by_other) =
            (sign(&new, body), sign(&old, body), sign(&ForgeSecret::new("other"), body));
        let flipped = format!(
            "{}{}",
            &by_new[..by_new.len() - 1],
            if by_new.ends_with('0') { '1' } else { '0' }
        );
        type Row<'a> = (&'a str, &'a [ForgeSecret], Option<&'a str>, Result<(), Rejected>);
        let rows: &[Row] = &[
            ("the new secret", &both, Some(&by_new), Ok(())),
            ("the old secret while rotating", &both, Some(&by_old), Ok(())),
            (
                "upper case digits",
                &both,
                Some(&by_new.to_uppercase().replace("SHA256", "sha256")),
                Ok(()),
            ),
            (
                "the old secret after rotating",
                std::slice::from_ref(&new),
                Some(&by_old),
                Err(Rejected),
            ),
            ("a stranger's secret", &both, Some(&by_other), Err(Rejected)),
            ("one digit changed", &both, Some(&flipped), Err(Rejected)),
            ("no header", &both, None, Err(Rejected)),
            ("an empty header", &both, Some(""), Err(Rejected)),
            ("the digits alone", &both, Some(&by_new["sha256=".len()..]), Err(Rejected)),
            (
                "the older algorithm",
                &both,
                Some("sha1=6a0d2e5d3f4c1b0a99887766554433221100ffee"),
                Err(Rejected),
            ),
            ("too short", &both, Some(&by_new[..40]), Err(Rejected)),
            ("too long", &both, Some(&format!("{by_new}00")), Err(Rejected)),
            (
                "not hexadecimal",
                &both,
                Some(&by_new.replace(['a', 'b', 'c', '1', '2', '3'], "x")),
                Err(Rejected),
            ),
            ("a space before", &both, Some(&format!(" {by_new}")), Err(Rejected)),
            ("no secret configured", &[], Some(&by_new), Err(Rejected)),
            (
                "an empty secret",
                &[ForgeSecret::new("")],
                Some(&sign(&ForgeSecret::new(""), body)),
                Err(Rejected),
            ),
        ];
        for (case, secrets, header, expected) in rows {
            assert_eq!(verify(secrets, *header, body), *expected, "{case}");
        }
    }
}
