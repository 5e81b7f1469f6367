//! Encodes layouts as bytes for object storage. Everything that was resolved is stored, and stanzas
//! are stored individually and decoded on first use.
//!
//! A cold function needs one project's stanzas and the jobs they name. Opening a layout decodes the
//! names, sort keys and diagnostics, and of the stanzas only those that are used.

use super::build::SiteDiagnostics;
use super::inputs::LayoutInputs;
use super::symbol_table::{StanzaId, SymbolTable};
use super::{BaseLayout, DiagnosticSite, Layout, ProviderConfig, schema_version};
use crate::connection::Connections;
use crate::error::{ConfigError, Diagnostic};
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

/// The bytes that begin a stored layout. Another format gets another number.
const MAGIC: &[u8] = b"sluice layout 3\n";
/// Maximum size of a decoded layout in bytes. 2,000 projects take a few million.
const BYTES_MAX: u64 = 1 << 30;

/// Why stored bytes cannot be decoded as a layout.
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
    /// The version of the parser that parsed the files.
    parser_version: u64,
    /// The content hash of the layout.
    id: String,
    /// The digest of the inputs.
    inputs: String,
    tenant: TenantConfig,
    connections: Connections,
    branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// The default branches that project stanzas declare.
    declared_defaults: BTreeMap<ProjectName, BranchName>,
    files: Vec<FileHead>,
    symbols: SymbolTable,
    resolution: SiteDiagnostics,
    checked: SiteDiagnostics,
    pipelines: Vec<Pipeline>,
    providers: Vec<ProviderConfig>,
    provider_errors: Vec<ConfigError>,
    references: Vec<(u32, StanzaId)>,
}

#[derive(Serialize, Deserialize)]
struct FileHead {
    source: Source,
    hash: String,
    pragma: PragmaStanza,
    diagnostics: Vec<Diagnostic>,
    /// The lengths of the encoded stanzas in bytes.
    stanzas: Vec<u32>,
    /// The lengths of the encoded stanzas with errors. Those of all files follow the other stanzas.
    faulty: Vec<u32>,
}

/// Encodes a layout, with its overlay applied as if it were merged. Empty, which cannot be decoded,
/// if encoding fails.
pub(super) fn to_bytes(layout: &Layout) -> Vec<u8> {
    let whole = match &layout.overlay {
        None => Arc::clone(&layout.base),
        Some(_) => layout.flattened().base,
    };
    // Encoding fails only for lists of unknown length, which do not occur, and writing to memory
    // does not fail. An empty result cannot be decoded, so a failure would be noticed.
    pack(&whole).unwrap_or_default()
}

/// Encodes a layout without overlay as bytes for [`from_bytes`]: the stanzas one by one, then
/// everything that was resolved. Diagnostics of whole files are stored with the files only.
fn pack(base: &BaseLayout) -> Result<Vec<u8>, LayoutDecodeError> {
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
            diagnostics: fragment.diagnostics.clone(),
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
        parser_version: base.parsed_by,
        id: base.id.clone(),
        inputs: base.inputs.digest.clone(),
        tenant: base.inputs.tenant.clone(),
        connections: base.inputs.connections.clone(),
        branches: base.inputs.branches.clone(),
        declared_defaults: base.inputs.declared_defaults.clone(),
        files,
        symbols: base.symbols.clone(),
        resolution: base
            .resolution
            .iter()
            .filter(|(site, _)| site.stanza.is_some())
            .map(|(site, found)| (*site, found.clone()))
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

/// Decodes a layout. Stanzas are decoded on first use, or at once if another version of the parser
/// read them. An error if the bytes are damaged or have another format, if the tenant does not load
/// one of the stored files, or if another version stored stanzas that this one cannot read. A
/// stanza that is found to be damaged on first use counts as missing.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<Layout, LayoutDecodeError> {
    let cut = || LayoutDecodeError("it is truncated".to_owned());
    let packed = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| LayoutDecodeError("it has another format".to_owned()))?;
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
        let FileHead { source, hash, pragma, diagnostics, .. } = file;
        let sound = ranges.len();
        ranges.extend(faulty);
        let count = ranges.len();
        let fragment = Fragment::packed(source, hash, pragma, diagnostics, &stanzas, ranges, sound);
        if head.parser_version != schema_version::parser_version()
            && fragment.all_stanzas().count() != count
        {
            return Err(LayoutDecodeError(format!(
                "another version stored the stanzas of {}",
                fragment.source.path
            )));
        }
        fragments.push(Arc::new(fragment));
    }
    let mut inputs =
        LayoutInputs::with_digest(head.tenant, head.connections, head.branches, head.inputs);
    inputs.declared_defaults = head.declared_defaults;
    let count = fragments.len();
    let files = inputs.in_order(fragments);
    if files.len() != count {
        return Err(LayoutDecodeError("it has files that its tenant does not load".to_owned()));
    }
    let mut resolution = head.resolution;
    for (number, file) in files.iter().enumerate() {
        let reported = inputs.reported_diagnostics(file);
        if !reported.is_empty() {
            resolution.insert(DiagnosticSite::of_file(number), reported);
        }
    }
    Ok(Layout::of(Arc::new(BaseLayout {
        id: head.id,
        parsed_by: head.parser_version,
        inputs,
        files,
        symbols: head.symbols,
        resolution,
        checked: head.checked,
        pipelines: head.pipelines,
        providers: head.providers,
        provider_errors: head.provider_errors,
        references: head.references,
    })))
}
