//! Signature Version 4 of requests in headers, as DynamoDB, SQS, KMS and EC2 get it. (S3, with its
//! signed URLs and chunked bodies, is verified by `s3s` against the same keys.)

use bytes::Bytes;
use hmac::{Hmac, Mac};
use http::{HeaderMap, Request};
use sha2::{Digest, Sha256};

use super::auth::{KeyRing, KnownKey};

/// How far the date of a request may be from now, in seconds.
const SKEW_SECONDS_MAX: i64 = 900;

/// The header with the session token of temporary credentials; a signed URL has a parameter of the
/// same name.
const TOKEN_HEADER: &str = "x-amz-security-token";

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The request carries no signature.
    #[error("Request is missing Authentication Token")]
    Missing,
    /// The `Authorization` header lacks a part, or a header it needs.
    #[error(
        "Authorization header requires Credential, SignedHeaders, Signature and a signed X-Amz-Date and Host"
    )]
    Incomplete,
    /// The access key does not exist.
    #[error("The security token included in the request is invalid.")]
    UnknownKey,
    /// The signature is not the one of this request under that key.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method."
    )]
    Mismatch,
    /// The request was signed more than 15 minutes from now.
    #[error(
        "Signature expired: the request was signed more than 15 minutes away from the current time"
    )]
    Expired,
}

/// The scope that a request claims, before anything is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialScope {
    /// The access key id.
    pub access_key_id: String,
    date: String,
    /// The region that the request is for.
    pub region: String,
    /// The service the request is for, for example `dynamodb`.
    pub service: String,
}

/// Returns the credential scope (key, region, service) that a request claims: that of its
/// `Authorization` header or, without this header, that of the query of a signed URL. `None`
/// without either or if it has another form. Nothing is verified.
#[must_use]
pub fn scope<B>(request: &Request<B>) -> Option<CredentialScope> {
    let header =
        request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(header) = header {
        return parse_scope(part(header, "Credential")?);
    }
    let query = request.uri().query()?;
    let credential = url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "X-Amz-Credential")?
        .1;
    parse_scope(&credential)
}

/// Verifies the signature in the headers of a request, and that its body is unchanged unless it is
/// declared as unsigned; returns the key that signed it. An error if a part is missing,
/// the key is unknown or lacks its session token, the signature differs, or it was made more than
/// 15 minutes from `now_seconds`. Signed URLs are not accepted. Which region and service are signed
/// is not checked.
///
/// # Errors
/// The [`SignatureError`] that each service words in its own way.
pub fn verify(
    request: &Request<Bytes>,
    keys: &KeyRing,
    now_seconds: i64,
) -> Result<KnownKey, SignatureError> {
    let headers = request.headers();
    let authorization = headers.get(http::header::AUTHORIZATION).ok_or(SignatureError::Missing)?;
    let authorization = authorization.to_str().map_err(|_| SignatureError::Incomplete)?;
    if !authorization.starts_with("AWS4-HMAC-SHA256") {
        return Err(SignatureError::Incomplete);
    }
    let needed = |name| part(authorization, name).ok_or(SignatureError::Incomplete);
    let scope = parse_scope(needed("Credential")?).ok_or(SignatureError::Incomplete)?;
    let signed_headers = needed("SignedHeaders")?;
    let signature = needed("Signature")?;
    let date = headers
        .get("x-amz-date")
        .and_then(|v| v.to_str().ok())
        .ok_or(SignatureError::Incomplete)?;
    let signs = |name: &str| signed_headers.split(';').any(|signed| signed == name);
    if !signs("host") || !signs("x-amz-date") || !date.starts_with(&scope.date) {
        return Err(SignatureError::Incomplete);
    }
    // Unsigned, the token could be added to the request of another caller.
    let token = headers.get(TOKEN_HEADER).filter(|_| signs(TOKEN_HEADER));
    let token = token.and_then(|token| token.to_str().ok());
    let now = u64::try_from(now_seconds).unwrap_or(0);
    let known = keys.get(&scope.access_key_id).filter(|key| key.is_valid(now) && key.takes(token));
    let known = known.ok_or(SignatureError::UnknownKey)?;
    let canonical = canonical_request(request, signed_headers)?;
    let CredentialScope { date: day, region, service, .. } = &scope;
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{date}\n{day}/{region}/{service}/aws4_request\n{}",
        hex::encode(Sha256::digest(canonical.as_bytes()))
    );
    let mut key = hmac(format!("AWS4{}", known.secret.expose()).as_bytes(), day.as_bytes())
        .finalize()
        .into_bytes();
    for step in [region.as_str(), service.as_str(), "aws4_request"] {
        key = hmac(&key, step.as_bytes()).finalize().into_bytes();
    }
    let given = hex::decode(signature).map_err(|_| SignatureError::Incomplete)?;
    // Compares in constant time.
    hmac(&key, to_sign.as_bytes()).verify_slice(&given).map_err(|_| SignatureError::Mismatch)?;
    let signed_at = epoch_seconds(date).ok_or(SignatureError::Incomplete)?;
    if (signed_at - now_seconds).abs() > SKEW_SECONDS_MAX {
        return Err(SignatureError::Expired);
    }
    Ok(known)
}

/// Returns the session token of a request to S3: of a header that its signature covers, or in a
/// signed URL. The signature is not verified. `None` without one.
pub(super) fn session_token(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    if let Some(authorization) = headers.get(http::header::AUTHORIZATION) {
        let signed = part(authorization.to_str().ok()?, "SignedHeaders")?;
        let is_signed = signed.split(';').any(|name| name == TOKEN_HEADER);
        let token = headers.get(TOKEN_HEADER).filter(|_| is_signed)?;
        return Some(token.to_str().ok()?.to_owned());
    }
    let mut pairs = url::form_urlencoded::parse(query?.as_bytes());
    let (_, token) = pairs.find(|(name, _)| name.eq_ignore_ascii_case(TOKEN_HEADER))?;
    Some(token.into_owned())
}

/// Returns the canonical form of a request, over which the signature is computed. An error if a
/// header in `signed_headers` (separated by `;`) is missing, or the body does not have the hash
/// that the request claims. The claim `UNSIGNED-PAYLOAD` fits every body.
fn canonical_request(
    request: &Request<Bytes>,
    signed_headers: &str,
) -> Result<String, SignatureError> {
    let mut canonical = format!("{}\n{}\n", request.method(), canonical_path(request.uri().path()));
    canonical.push_str(&canonical_query(request.uri().query().unwrap_or_default()));
    canonical.push('\n');
    for name in signed_headers.split(';') {
        let value = header_value(request, name).ok_or(SignatureError::Incomplete)?;
        canonical.push_str(&format!("{name}:{value}\n"));
    }
    let actual = hex::encode(Sha256::digest(request.body()));
    let claimed = request.headers().get("x-amz-content-sha256").and_then(|v| v.to_str().ok());
    if claimed.is_some_and(|claimed| claimed != actual && claimed != "UNSIGNED-PAYLOAD") {
        return Err(SignatureError::Mismatch);
    }
    canonical.push_str(&format!("\n{signed_headers}\n{}", claimed.unwrap_or(&actual)));
    Ok(canonical)
}

/// Returns a header's value as it is signed: trimmed, runs of spaces reduced to one, several values
/// joined by a comma. Without the header `host` it is the host of the URI. `None` if there is none.
fn header_value(request: &Request<Bytes>, name: &str) -> Option<String> {
    let headers: &HeaderMap = request.headers();
    let values: Vec<String> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(|value| value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
        .collect();
    if values.is_empty() {
        // A request that never was on a socket has its host in the URI only.
        return (name == "host")
            .then(|| request.uri().authority().map(ToString::to_string))
            .flatten();
    }
    Some(values.join(","))
}

/// Returns the path with every segment encoded once more, as all services except S3 sign it.
fn canonical_path(path: &str) -> String {
    if path.is_empty() {
        "/".to_owned()
    } else {
        path.split('/').map(encode).collect::<Vec<_>>().join("/")
    }
}

/// Returns the query as it is signed: each parameter is decoded and percent-encoded as signatures
/// require, and all are sorted.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| format!("{}={}", encode(&name), encode(&value)))
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// Percent-encodes everything but the unreserved characters (letters, digits and `-_.~`).
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(byte.into())
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns the value of a part of the `Authorization` header by its name, such as `Signature`;
/// `None` if it is missing.
fn part<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let from = header.find(&format!("{name}="))? + name.len() + 1;
    header[from..].split(',').next().map(str::trim)
}

/// Parses a credential scope of the form `key/date/region/service/aws4_request`; `None` if it has
/// another form.
fn parse_scope(credential: &str) -> Option<CredentialScope> {
    // An access key id has no slash.
    let mut parts = credential.split('/').map(str::to_owned);
    let scope = CredentialScope {
        access_key_id: parts.next()?,
        date: parts.next()?,
        region: parts.next()?,
        service: parts.next()?,
    };
    (parts.next().as_deref() == Some("aws4_request")).then_some(scope)
}

/// Returns the HMAC with SHA-256 of `data`, to be finished or compared.
fn hmac(key: &[u8], data: &[u8]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(data);
    mac
}

/// Parses `YYYYMMDDThhmmssZ` to seconds since the epoch. `None` for a text that is too short, has
/// other characters for digits, or no such month; days, times, separators and what follows are not
/// checked.
fn epoch_seconds(date: &str) -> Option<i64> {
    let digits = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (digits(0, 4)?, digits(4, 6)?, digits(6, 8)?);
    let (hour, minute, second) = (digits(9, 11)?, digits(11, 13)?, digits(13, 15)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Days of the proleptic Gregorian calendar, the year beginning in March.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, month) = (year.div_euclid(400), (month + 9) % 12);
    let of_era = year.rem_euclid(400);
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_seconds_since_the_epoch() {
        assert_eq!(epoch_seconds("19700101T000000Z"), Some(0));
        assert_eq!(epoch_seconds("20240229T123456Z"), Some(1_709_210_096));
        assert_eq!(epoch_seconds("2024"), None);
    }

    #[test]
    fn a_signed_url_and_a_header_name_their_scope() {
        let url =
            Request::get("/b/k?X-Amz-Credential=AKID%2F20240101%2Fus-east-1%2Fs3%2Faws4_request")
                .body(())
                .unwrap();
        assert_eq!(scope(&url).unwrap().service, "s3");
        let header = Request::post("/")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=AKID/20240101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00")
            .body(())
            .unwrap();
        assert_eq!(scope(&header).unwrap().access_key_id, "AKID");
    }
}
