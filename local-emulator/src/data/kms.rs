//! KMS: Encrypt and Decrypt under symmetric keys, bound to their encryption context. JSON 1.1.
//!
//! A key is a file `<key id>.key` of 32 random bytes, mode 0600, in the service's directory. A
//! ciphertext is a version byte, the length and text of the key id, a 12-byte nonce, and
//! AES-256-GCM's output; version, key id and context are authenticated with it.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::json;

use super::account::Account;
use super::auth::Caller;
use super::store::StoreError;
use super::wire::Problem;

/// Content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/x-amz-json-1.1";
/// What `X-Amz-Target` begins with.
pub const TARGET_PREFIX: &str = "TrentService.";

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const PLAINTEXT_BYTES_MAX: usize = 4096;
const CIPHERTEXT_BYTES_MAX: usize = 6144;
const VERSION: u8 = 1;

/// The keys of one data directory.
pub struct Kms {
    directory: PathBuf,
    account: Account,
    keys: Mutex<BTreeMap<String, LessSafeKey>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EncryptRequest {
    key_id: String,
    plaintext: String,
    #[serde(default)]
    encryption_context: BTreeMap<String, String>,
    encryption_algorithm: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DecryptRequest {
    ciphertext_blob: String,
    key_id: Option<String>,
    #[serde(default)]
    encryption_context: BTreeMap<String, String>,
    encryption_algorithm: Option<String>,
}

impl Kms {
    /// Opens the keys in the files `ID.key` of `directory`, which is created if it is missing.
    /// Other files in it are ignored. An error if a key cannot be read or has not 32 bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the directory or a key in it cannot be read.
    pub fn open(directory: &Path, account: Account) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(StoreError::file("create", directory))?;
        let mut keys = BTreeMap::new();
        for entry in std::fs::read_dir(directory).map_err(StoreError::file("list", directory))? {
            let path = entry.map_err(StoreError::file("list", directory))?.path();
            if path.extension().is_some_and(|extension| extension == "key")
                && let Some(id) = path.file_stem().and_then(|stem| stem.to_str())
            {
                keys.insert(id.to_owned(), read_key(&path)?);
            }
        }
        Ok(Self { directory: directory.to_owned(), account, keys: Mutex::new(keys) })
    }

    /// Creates the key with this id, with random content, if it does not exist, and returns its
    /// ARN. An empty id, or one with other characters than letters, digits and `-`, is an error.
    ///
    /// # Errors
    /// [`StoreError`] when the key cannot be written.
    pub fn ensure_key(&self, id: &str) -> Result<String, StoreError> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.contains_key(id) {
            let path = self.directory.join(format!("{id}.key"));
            if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                let why = "a key id has letters, digits and hyphens only".to_owned();
                return Err(StoreError::Corrupt { what: format!("the key id {id:?}"), path, why });
            }
            write_new_key(&path)?;
            keys.insert(id.to_owned(), read_key(&path)?);
        }
        Ok(self.account.key_arn(id))
    }

    /// Runs `Encrypt` or `Decrypt` and returns the body of the response. An error for another
    /// operation, or if the caller's policy does not allow it.
    pub(super) fn call(
        &self,
        operation: &str,
        body: &[u8],
        caller: &Caller,
    ) -> Result<String, Problem> {
        match operation {
            "Encrypt" => self.encrypt(parse(body)?, caller),
            "Decrypt" => self.decrypt(parse(body)?, caller),
            other => Err(refused(
                "UnknownOperationException",
                format!("the operation {other} is not provided"),
            )),
        }
    }

    /// Encrypts 1 to 4096 bytes with a key and an encryption context, and returns the body of the
    /// response. An error if the caller's policy does not allow it, the key does not exist, another
    /// algorithm is requested, or the data is empty, longer or not Base64. The context must be the
    /// same to decrypt.
    fn encrypt(&self, request: EncryptRequest, caller: &Caller) -> Result<String, Problem> {
        check_algorithm(request.encryption_algorithm.as_deref())?;
        let id = key_id(&request.key_id);
        let arn = self.account.key_arn(id);
        allowed(caller, "kms:Encrypt", &arn, &request.encryption_context)?;
        let mut sealed =
            BASE64.decode(&request.plaintext).map_err(|_| validation("Plaintext is not base64"))?;
        if sealed.is_empty() || sealed.len() > PLAINTEXT_BYTES_MAX {
            return Err(validation("Plaintext must have a length of 1 to 4096 bytes"));
        }
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.get(id).ok_or_else(|| not_found(&arn))?;
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| internal())?;
        let head = header(id);
        let aad = Aad::from(bound(&head, &request.encryption_context));
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| internal())?;
        let blob = [head.as_slice(), &nonce, &sealed].concat();
        let answer = json!({"CiphertextBlob": BASE64.encode(blob), "KeyId": arn, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"});
        Ok(answer.to_string())
    }

    /// Decrypts data with the key that the ciphertext names, and returns the body of the response.
    /// An error, without a reason, if the encryption context differs or the ciphertext was changed;
    /// also if the caller's policy does not allow it, the key does not exist, or the request names
    /// another key.
    fn decrypt(&self, request: DecryptRequest, caller: &Caller) -> Result<String, Problem> {
        check_algorithm(request.encryption_algorithm.as_deref())?;
        let blob = BASE64
            .decode(&request.ciphertext_blob)
            .map_err(|_| validation("CiphertextBlob is not base64"))?;
        if blob.is_empty() || blob.len() > CIPHERTEXT_BYTES_MAX {
            return Err(validation("CiphertextBlob must have a length of 1 to 6144 bytes"));
        }
        let (id, sealed) = split(&blob).ok_or_else(invalid_ciphertext)?;
        let arn = self.account.key_arn(id);
        allowed(caller, "kms:Decrypt", &arn, &request.encryption_context)?;
        if request.key_id.as_deref().is_some_and(|given| key_id(given) != id) {
            let why = "The key ID in the request does not identify a CMK that can perform this operation.";
            return Err(refused("IncorrectKeyException", why.to_owned()));
        }
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.get(id).ok_or_else(|| not_found(&arn))?;
        let (nonce, sealed) =
            sealed.split_at_checked(NONCE_BYTES).ok_or_else(invalid_ciphertext)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| invalid_ciphertext())?;
        let mut plain = sealed.to_vec();
        let aad = Aad::from(bound(&header(id), &request.encryption_context));
        let plain = key.open_in_place(nonce, aad, &mut plain).map_err(|_| invalid_ciphertext())?;
        let answer = json!({"Plaintext": BASE64.encode(plain), "KeyId": arn, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"});
        Ok(answer.to_string())
    }
}

/// Decodes the body of a request; a `SerializationException` if it does not have the form.
fn parse<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| refused("SerializationException", error.to_string()))
}

/// Returns an error for an algorithm other than symmetric encryption; without a name there is none.
fn check_algorithm(given: Option<&str>) -> Result<(), Problem> {
    match given {
        None | Some("SYMMETRIC_DEFAULT") => Ok(()),
        Some(other) => Err(refused(
            "InvalidKeyUsageException",
            format!("{other} is not an algorithm of a symmetric key"),
        )),
    }
}

/// Returns an error unless the caller's policies allow `action` on the key `arn` with this
/// encryption context, which conditions see as `kms:EncryptionContext:<name>`.
fn allowed(
    caller: &Caller,
    action: &str,
    arn: &str,
    context: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    let keys: Vec<String> =
        context.keys().map(|key| format!("kms:EncryptionContext:{key}")).collect();
    let values: Vec<(&str, &str)> = keys
        .iter()
        .zip(context.values())
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    caller
        .check_with(action, arn, &values)
        .map_err(|denied| refused("AccessDeniedException", denied.to_string()))
}

/// Returns the id of a key that is given by its id or ARN.
fn key_id(given: &str) -> &str {
    given.rsplit_once(":key/").map_or(given, |(_, id)| id)
}

/// Returns the start of a ciphertext: the version, the length of the key's id and the id.
fn header(id: &str) -> Vec<u8> {
    let mut header = vec![VERSION, u8::try_from(id.len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(id.as_bytes());
    header
}

/// Splits a ciphertext into the key's id and what follows it (nonce and encrypted data); `None` if
/// it is too short, has another version or an id that is not UTF-8. Nothing is verified.
fn split(blob: &[u8]) -> Option<(&str, &[u8])> {
    let (&[version, length], rest) = blob.split_first_chunk::<2>()?;
    let (id, sealed) = rest.split_at_checked(length.into())?;
    (version == VERSION).then_some((std::str::from_utf8(id).ok()?, sealed))
}

/// Returns the data that is authenticated with the ciphertext: `header`, then the context's names
/// and values in order. It contains lengths, so that two contexts never give the same bytes.
fn bound(header: &[u8], context: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = header.to_vec();
    for text in context.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Writes a random key to a file that only its owner can read, and replaces one that is there. The
/// file is whole or absent, also after a kill.
fn write_new_key(path: &Path) -> Result<(), StoreError> {
    let mut bytes = [0; KEY_BYTES];
    let random = |_| StoreError::File {
        attempt: "make a key for",
        path: path.to_owned(),
        source: std::io::Error::other("no randomness"),
    };
    aws_lc_rs::rand::fill(&mut bytes).map_err(random)?;
    // Written beside and renamed: a key is whole or absent.
    let beside = path.with_extension("new");
    let failed = || StoreError::file("write", &beside);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed())?;
    file.write_all(&bytes).map_err(failed())?;
    file.sync_all().map_err(failed())?;
    std::fs::rename(&beside, path).map_err(StoreError::file("rename", path))
}

/// Reads a key from its file; an error if the file does not have exactly 32 bytes.
fn read_key(path: &Path) -> Result<LessSafeKey, StoreError> {
    let bytes = std::fs::read(path).map_err(StoreError::file("read", path))?;
    let corrupt = || StoreError::Corrupt {
        what: "a key".to_owned(),
        path: path.to_owned(),
        why: "it has not 32 bytes".to_owned(),
    };
    UnboundKey::new(&AES_256_GCM, &bytes).map(LessSafeKey::new).map_err(|_| corrupt())
}

/// Returns an error of this type with status 400.
fn refused(kind: &str, message: String) -> Problem {
    Problem::new(400, kind, message)
}

/// Returns the error for an invalid request.
fn validation(message: &str) -> Problem {
    refused("ValidationException", message.to_owned())
}

/// Returns the error for a key that does not exist.
fn not_found(arn: &str) -> Problem {
    refused("NotFoundException", format!("Key '{arn}' does not exist"))
}

/// Returns the error for a ciphertext that cannot be decrypted, without a reason.
fn invalid_ciphertext() -> Problem {
    // Like AWS, gives no reason, because the reason would help an attacker.
    refused("InvalidCiphertextException", String::new())
}

/// Returns the error for a failure of the emulator.
fn internal() -> Problem {
    Problem::new(500, "KMSInternalException", "the key could not be used")
}

/// Returns an injected failure in KMS's form: throttling as such, every other one as an internal
/// error.
pub(super) fn injected(failure: &super::faults::InjectedError) -> Problem {
    match failure {
        super::faults::InjectedError::Throttled => {
            refused("ThrottlingException", "Rate exceeded".to_owned())
        }
        _ => internal(),
    }
}
