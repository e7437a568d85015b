//! Where the files of modules and includes are.

use std::path::{Component, Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

use super::types::plain;

/// Where `mod x;` in the file at `path` looks.
pub(super) fn children_folder(path: &Path, is_root: bool) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) }
}

/// The files that a `mod x;` may mean.
pub(super) struct ModuleFiles {
    /// Named by `#[path]`, or by a `path` inside `#[cfg_attr]`: each has to exist.
    pub(super) named: Vec<PathBuf>,
    /// `x.rs` and `x/mod.rs`, where no `#[path]` overrides them.
    pub(super) usual: Vec<PathBuf>,
    /// Whether nothing but the usual places can be meant.
    pub(super) needs_usual: bool,
}

/// `folder` is where modules are looked for, `beside` the file whose folder `#[path]` starts from.
pub(super) fn module_files(item: &syn::ItemMod, folder: &Path, beside: &Path) -> ModuleFiles {
    let home = beside.parent().unwrap_or(Path::new(""));
    let mut plain_path = false;
    let mut named = Vec::new();
    for attribute in &item.attrs {
        if let Some(path) = path_value(&attribute.meta) {
            plain_path = true;
            named.push(clean(&home.join(path)));
        }
        named.extend(conditional_paths(attribute).iter().map(|path| clean(&home.join(path))));
    }
    let name = plain(&item.ident);
    let usual = if plain_path {
        Vec::new()
    } else {
        vec![clean(&folder.join(format!("{name}.rs"))), clean(&folder.join(name).join("mod.rs"))]
    };
    ModuleFiles { needs_usual: named.is_empty(), named, usual }
}

/// The text in `path = "…"`.
fn path_value(meta: &Meta) -> Option<String> {
    match meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => text_of(&pair.value),
        _ => None,
    }
}

/// The paths in `#[cfg_attr(unix, path = "unix.rs")]`, however deep.
fn conditional_paths(attribute: &Attribute) -> Vec<String> {
    let mut paths = Vec::new();
    if let Meta::List(list) = &attribute.meta
        && list.path.is_ident("cfg_attr")
    {
        paths_in(list.tokens.clone(), &mut paths);
    }
    paths
}

fn paths_in(tokens: TokenStream, paths: &mut Vec<String>) {
    let Ok(parts) = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens) else {
        return;
    };
    // The first part is the condition.
    for part in parts.iter().skip(1) {
        paths.extend(path_value(part));
        if let Meta::List(list) = part
            && list.path.is_ident("cfg_attr")
        {
            paths_in(list.tokens.clone(), paths);
        }
    }
}

fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::Group(inner) => text_of(&inner.expr),
        _ => None,
    }
}

/// The file that `include!` names in the file at `beside`: a text, or texts put together with the
/// package's folder. What is made at build time has no name here.
pub(super) fn included(
    tokens: TokenStream,
    beside: &Path,
    package: Option<&Path>,
) -> Option<PathBuf> {
    let path = syn::parse2::<Expr>(tokens).ok().and_then(|path| written_path(&path, package))?;
    Some(clean(&beside.parent()?.join(path)))
}

fn written_path(expression: &Expr, package: Option<&Path>) -> Option<String> {
    let Expr::Macro(call) = expression else {
        return text_of(expression);
    };
    let arguments = Punctuated::<Expr, Token![,]>::parse_terminated;
    let parts = arguments.parse2(call.mac.tokens.clone()).ok()?;
    let last = call.mac.path.segments.last().map(|last| plain(&last.ident))?;
    match last.as_str() {
        "concat" => parts.iter().map(|part| written_path(part, package)).collect(),
        "env" if parts.first().and_then(text_of)? == "CARGO_MANIFEST_DIR" => {
            Some(package?.to_str()?.to_owned())
        }
        _ => None,
    }
}

/// Whether the tokens hold the word anywhere.
pub(super) fn has_word(tokens: TokenStream, words: &[&str]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => words.iter().any(|word| ident == word),
        TokenTree::Group(group) => has_word(group.stream(), words),
        _ => false,
    })
}

/// Without `.` and `..`, as `#[path]` may have them.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}
