//! Checks rules about code that need a parser: type names, parameters of public functions, and
//! cycles between modules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_architecture_tests::cycles::module_cycles;
use sluice_architecture_tests::plan::{
    CYCLE_FILES_MAX, CYCLES_ALLOWED, PARAMETERS_ALLOWED, TYPE_NAMES_ALLOWED,
};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// A parsed Rust file.
struct Parsed {
    path: String,
    /// The directory of the file's crate, such as `shared/gate`.
    crate_directory: String,
    syntax: syn::File,
}

/// Returns every Rust file below a crate's `src`, parsed.
fn sources() -> Vec<Parsed> {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    files
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .filter_map(|(path, text)| {
            let crate_directory = path.split_once("/src/")?.0.to_owned();
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
            Some(Parsed { path, crate_directory, syntax })
        })
        .collect()
}

/// Collects the names of `pub` types.
#[derive(Default)]
struct PublicTypes(BTreeSet<String>);

impl PublicTypes {
    fn add(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.0.insert(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for PublicTypes {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.vis, &item.ident);
    }
}

#[test]
fn no_public_type_name_is_used_in_two_crates() {
    let mut crates_of_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let mut types = PublicTypes::default();
        types.visit_file(&source.syntax);
        for name in types.0 {
            crates_of_name.entry(name).or_default().insert(source.crate_directory.clone());
        }
    }
    let found: Vec<String> = crates_of_name
        .iter()
        .filter(|(name, crates)| {
            crates.len() > 1 && !TYPE_NAMES_ALLOWED.iter().any(|(allowed, _)| allowed == name)
        })
        .map(|(name, crates)| format!("{name} is defined in {crates:?}"))
        .collect();
    assert!(found.is_empty(), "give each type a name of its own:\n{}", found.join("\n"));
}

/// Collects `pub` functions with a tuple or `bool` parameter.
#[derive(Default)]
struct UnclearParameters(Vec<(usize, String)>);

impl UnclearParameters {
    fn check(&mut self, visibility: &syn::Visibility, signature: &syn::Signature) {
        if !matches!(visibility, syn::Visibility::Public(_)) {
            return;
        }
        let unclear = signature.inputs.iter().any(|input| match input {
            syn::FnArg::Receiver(_) => false,
            syn::FnArg::Typed(parameter) => is_tuple_or_bool(&parameter.ty),
        });
        if unclear {
            let line = signature.ident.span().start().line;
            self.0.push((line, signature.ident.to_string()));
        }
    }
}

fn is_tuple_or_bool(parameter: &syn::Type) -> bool {
    match parameter {
        syn::Type::Tuple(_) => true,
        syn::Type::Path(path) => path.path.is_ident("bool"),
        syn::Type::Reference(reference) => is_tuple_or_bool(&reference.elem),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for UnclearParameters {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.vis, &item.sig);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.vis, &item.sig);
    }
}

#[test]
fn no_public_function_takes_a_tuple_or_a_bool() {
    let mut found = Vec::new();
    for source in sources() {
        let mut unclear = UnclearParameters::default();
        unclear.visit_file(&source.syntax);
        for (line, name) in unclear.0 {
            let allowed = PARAMETERS_ALLOWED
                .iter()
                .any(|(path, function, _)| *path == source.path && *function == name);
            if !allowed {
                found.push(format!("{}:{line}: {name}", source.path));
            }
        }
    }
    assert!(found.is_empty(), "take a struct or an enum instead:\n{}", found.join("\n"));
}

#[test]
fn no_module_cycle_is_longer_than_the_limit() {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    let found: Vec<String> = module_cycles(&files)
        .into_iter()
        .filter(|(directory, modules)| {
            modules.len() > CYCLE_FILES_MAX
                && !CYCLES_ALLOWED.iter().any(|(allowed, _)| allowed == directory)
        })
        .map(|(directory, modules)| format!("{directory}: {}", modules.join(" <-> ")))
        .collect();
    assert!(found.is_empty(), "break these module cycles:\n{}", found.join("\n"));
}

#[test]
fn every_allowance_is_used() {
    let sources = sources();
    let mut unused = Vec::new();
    for (path, function, _) in PARAMETERS_ALLOWED {
        let used = sources.iter().filter(|source| source.path == *path).any(|source| {
            let mut unclear = UnclearParameters::default();
            unclear.visit_file(&source.syntax);
            unclear.0.iter().any(|(_, name)| name == function)
        });
        if !used {
            unused.push(format!("{path}: {function}"));
        }
    }
    assert!(unused.is_empty(), "remove from PARAMETERS_ALLOWED:\n{}", unused.join("\n"));
}
