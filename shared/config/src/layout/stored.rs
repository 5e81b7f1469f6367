//! Layouts as bytes, for object storage: everything that was decided, and each stanza by itself,
//! read when somebody wants it.
//!
//! A cold function wants one project's stanzas and the jobs they name. To open a layout it reads
//! the names, places and mistakes; of the stanzas only those that it asks for.

use super::build::Problems;
use super::ground::Ground;
use super::shelf::{Shelves, Unit};
use super::{Base, Layout, ProviderConfig, Spot, shapes};
use crate::connection::Connections;
use crate::error::{ConfigError, Problem};
use crate::fragment::{Fragment, Packed, Source};
use crate::objects::PragmaStanza;
use crate::pack::{self, PackError, Packer};
use crate::pipeline::Pipeline;
use crate::tenant::TenantConfig;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};
use sluice_model::{BranchName, ProjectName};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::sync::Arc;

/// What the bytes begin with; another form gets another number.
const MAGIC: &[u8] = b"sluice layout 3\n";
/// Greatest size of an opened layout in bytes; 2,000 projects take a few million.
const BYTES_MAX: u64 = 1 << 30;

/// Why stored bytes are no layout.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a stored layout because {0}; build it again from the repositories")]
pub struct LayoutDecodeError(String);

impl From<PackError> for LayoutDecodeError {
    fn from(cause: PackError) -> Self {
        Self(cause.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    shapes: u64,
    id: String,
    ground: String,
    tenant: TenantConfig,
    connections: Connections,
    branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// Branches that count first by their projects' own word.
    #[serde(default)]
    said: BTreeMap<ProjectName, BranchName>,
    files: Vec<FileHead>,
    shelves: Shelves,
    settled: Problems,
    checked: Problems,
    pipelines: Vec<Pipeline>,
    providers: Vec<ProviderConfig>,
    provider_errors: Vec<ConfigError>,
    references: Vec<(u32, Unit)>,
}

#[derive(Serialize, Deserialize)]
struct FileHead {
    source: Source,
    hash: String,
    pragma: PragmaStanza,
    problems: Vec<Problem>,
    /// Bytes of each stanza.
    stanzas: Vec<u32>,
    /// Bytes of each stanza with mistakes. Those of all files stand behind the others, where an
    /// older version looks for none.
    #[serde(default)]
    faulty: Vec<u32>,
}

/// Returns a layout as bytes. An overlay is stored as what it comes to.
pub(super) fn to_bytes(layout: &Layout) -> Vec<u8> {
    let whole = match &layout.over {
        None => Arc::clone(&layout.base),
        Some(_) => layout.flattened().base,
    };
    // Packing fails for lists that do not know their length, of which there are none here; writing
    // to memory does not fail. Without bytes nothing opens, which is noticed at once.
    pack(&whole).unwrap_or_default()
}

fn pack(base: &Base) -> Result<Vec<u8>, LayoutDecodeError> {
    let mut packer = Packer::default();
    let mut files = Vec::with_capacity(base.files.len());
    for file in &base.files {
        let fragment = &file.fragment;
        let lengths = fragment
            .stanzas()
            .map(|stanza| packer.pack(stanza))
            .map(|length| Ok::<_, PackError>(length? as u32));
        files.push(FileHead {
            source: fragment.source.clone(),
            hash: fragment.hash.clone(),
            pragma: fragment.pragma.clone(),
            problems: fragment.problems.clone(),
            stanzas: lengths.collect::<Result<_, _>>()?,
            faulty: Vec::new(),
        });
    }
    for (file, head) in base.files.iter().zip(&mut files) {
        let lengths = file.fragment.faulty().map(|stanza| packer.pack(stanza));
        head.faulty =
            lengths.map(|length| Ok::<_, PackError>(length? as u32)).collect::<Result<_, _>>()?;
    }
    let head = packer.pack(&Head {
        shapes: base.parsed_by,
        id: base.id.clone(),
        ground: base.ground.digest.clone(),
        tenant: base.ground.tenant.clone(),
        connections: base.ground.connections.clone(),
        branches: base.ground.branches.clone(),
        said: base.ground.said.clone(),
        files,
        shelves: base.shelves.clone(),
        settled: base
            .settled
            .iter()
            .filter(|(spot, _)| spot.stanza.is_some())
            .map(|(spot, found)| (*spot, found.clone()))
            .collect(),
        checked: base.checked.clone(),
        pipelines: base.pipelines.clone(),
        providers: base.providers.clone(),
        provider_errors: base.provider_errors.clone(),
        references: base.references.clone(),
    })?;
    let (values, names) = packer.finish();
    let mut names_packer = Packer::default();
    names_packer.pack(&names)?;
    let (names, _) = names_packer.finish();
    let written = |cause: std::io::Error| LayoutDecodeError(cause.to_string());
    let mut out = MAGIC.to_vec();
    let mut zip = ZlibEncoder::new(&mut out, Compression::new(3));
    for length in [names.len(), head] {
        zip.write_all(&(length as u64).to_le_bytes()).map_err(written)?;
    }
    zip.write_all(&names).map_err(written)?;
    zip.write_all(&values).map_err(written)?;
    zip.finish().map_err(written)?;
    Ok(out)
}

/// Returns the layout of stored bytes.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<Layout, LayoutDecodeError> {
    let cut = || LayoutDecodeError("it ends too early".to_owned());
    let packed = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| LayoutDecodeError("it is of another form".to_owned()))?;
    let mut plain = Vec::new();
    let unzipped = ZlibDecoder::new(packed).take(BYTES_MAX).read_to_end(&mut plain);
    unzipped.map_err(|cause| LayoutDecodeError(format!("it is damaged ({cause})")))?;
    let length = |at: usize| -> Option<usize> {
        usize::try_from(u64::from_le_bytes(plain.get(at..at + 8)?.try_into().ok()?)).ok()
    };
    let (names_length, head_length) = (length(0).ok_or_else(cut)?, length(8).ok_or_else(cut)?);
    let values_start = names_length.checked_add(16).ok_or_else(cut)?;
    let head_start = plain
        .len()
        .checked_sub(head_length)
        .filter(|start| *start >= values_start)
        .ok_or_else(cut)?;
    let no_names: [&str; 0] = [];
    let names: Vec<String> = pack::read(plain.get(16..values_start).ok_or_else(cut)?, &no_names)?;
    let head: Head = pack::read(plain.get(head_start..).ok_or_else(cut)?, &names)?;
    plain.truncate(head_start);
    let stanzas = Arc::new(Packed { bytes: plain, names });
    let mut start = values_start;
    let mut ranges = |lengths: &[u32]| -> Vec<Range<usize>> {
        let next = |length: &u32| {
            let begun = start;
            start += *length as usize;
            begun..start
        };
        lengths.iter().map(next).collect()
    };
    let sound: Vec<_> = head.files.iter().map(|file| ranges(&file.stanzas)).collect();
    let faulty: Vec<_> = head.files.iter().map(|file| ranges(&file.faulty)).collect();
    let mut fragments = Vec::with_capacity(head.files.len());
    for ((file, mut ranges), faulty) in head.files.into_iter().zip(sound).zip(faulty) {
        let FileHead { source, hash, pragma, problems, .. } = file;
        let sound = ranges.len();
        ranges.extend(faulty);
        let count = ranges.len();
        let fragment = Fragment::packed(source, hash, pragma, problems, &stanzas, ranges, sound);
        if head.shapes != shapes::name() && fragment.read().count() != count {
            return Err(LayoutDecodeError(format!(
                "another version stored stanzas of {}",
                fragment.source.path
            )));
        }
        fragments.push(Arc::new(fragment));
    }
    let mut ground = Ground::known(head.tenant, head.connections, head.branches, head.ground);
    ground.said = head.said;
    let count = fragments.len();
    let files = ground.in_order(fragments);
    if files.len() != count {
        return Err(LayoutDecodeError("it has files that its tenant does not read".to_owned()));
    }
    let mut settled = head.settled;
    for (number, file) in files.iter().enumerate() {
        let told = ground.told_of(file);
        if !told.is_empty() {
            settled.insert(Spot::of_file(number), told);
        }
    }
    Ok(Layout::of(Arc::new(Base {
        id: head.id,
        parsed_by: head.shapes,
        ground,
        files,
        shelves: head.shelves,
        settled,
        checked: head.checked,
        pipelines: head.pipelines,
        providers: head.providers,
        provider_errors: head.provider_errors,
        references: head.references,
    })))
}
