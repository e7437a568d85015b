//! The names that one item defines, in a module or in a block.

use syn::{Fields, ImplItem, Item, TraitItem};

use super::types::{TypeExpr, plain};
use super::{Name, Names, PathRef, TypeFacts};
use crate::testcode::is_cfg_test;

/// Adds the name an item defines; test-only items define none.
pub(crate) fn add_item(names: &mut Names, item: &Item) {
    match item {
        Item::Use(item) if !is_cfg_test(&item.attrs) => {
            let start = PathRef { leading: item.leading_colon.is_some(), segments: Vec::new() };
            add_use(names, &item.tree, start);
        }
        Item::ExternCrate(item) if !is_cfg_test(&item.attrs) => {
            let target = PathRef { leading: true, segments: vec![plain(&item.ident)] };
            let name = item.rename.as_ref().map_or(&item.ident, |(_, rename)| rename);
            names.add(plain(name), Name::Use(target));
        }
        Item::Fn(item) if !is_cfg_test(&item.attrs) => {
            names.add(plain(&item.sig.ident), Name::Value(TypeExpr::of_return(&item.sig.output)));
        }
        Item::Const(item) => names.add(plain(&item.ident), Name::Value(TypeExpr::of(&item.ty))),
        Item::Static(item) => names.add(plain(&item.ident), Name::Value(TypeExpr::of(&item.ty))),
        Item::Struct(item) => names.add(plain(&item.ident), Name::Type),
        Item::Enum(item) => names.add(plain(&item.ident), Name::Type),
        Item::Union(item) => names.add(plain(&item.ident), Name::Type),
        Item::Trait(item) => names.add(plain(&item.ident), Name::Type),
        Item::Type(item) => names.add(plain(&item.ident), Name::Alias(TypeExpr::of(&item.ty))),
        _ => {}
    }
}

fn add_use(names: &mut Names, tree: &syn::UseTree, mut prefix: PathRef) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.segments.push(plain(&path.ident));
            add_use(names, &path.tree, prefix);
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                add_use(names, tree, prefix.clone());
            }
        }
        syn::UseTree::Glob(_) => names.globs.push(prefix),
        syn::UseTree::Name(name) => {
            let (prefix, name) = ending(prefix, &name.ident);
            names.add(name, Name::Use(prefix));
        }
        syn::UseTree::Rename(rename) => {
            let (prefix, _) = ending(prefix, &rename.ident);
            if rename.rename != "_" {
                names.add(plain(&rename.rename), Name::Use(prefix));
            }
        }
    }
}

/// The whole path of an import and the name it gives; `a::{self}` is `a`.
fn ending(mut prefix: PathRef, ident: &syn::Ident) -> (PathRef, String) {
    let name = plain(ident);
    if name != "self" || prefix.segments.is_empty() {
        prefix.segments.push(name);
    }
    let last = prefix.segments.last().cloned().unwrap_or_default();
    (prefix, last)
}

/// The generic parameters as names, each with its bound.
pub(crate) fn generics(generics: &syn::Generics) -> Names {
    let mut names = Names::default();
    for parameter in generics.type_params() {
        let mut bound = TypeExpr::of_bounds(&parameter.bounds);
        for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
            if let syn::WherePredicate::Type(predicate) = predicate
                && let syn::Type::Path(of) = &predicate.bounded_ty
                && of.path.is_ident(&parameter.ident)
                && bound == TypeExpr::Other
            {
                bound = TypeExpr::of_bounds(&predicate.bounds);
            }
        }
        names.add(plain(&parameter.ident), Name::Generic(bound));
    }
    names
}

/// What an item that defines a type says about it.
pub(crate) fn facts_of(item: &Item) -> Option<(String, TypeFacts)> {
    let mut facts = TypeFacts::default();
    let ident = match item {
        Item::Struct(item) => {
            facts.fields.extend(fields_of(&item.fields));
            &item.ident
        }
        Item::Enum(item) => {
            for variant in &item.variants {
                let prefix = plain(&variant.ident);
                let fields = fields_of(&variant.fields).into_iter();
                facts.fields.extend(fields.map(|(name, ty)| (format!("{prefix}.{name}"), ty)));
            }
            &item.ident
        }
        Item::Trait(item) => {
            facts.methods.extend(methods_of_trait(item));
            &item.ident
        }
        _ => return None,
    };
    Some((plain(ident), facts))
}

/// The `Target` of a type that derefs, among its methods: no method has such a name.
pub(crate) const DEREF: &str = "*";

/// The methods of an `impl`, with what they return.
pub(crate) fn methods_of_impl(block: &syn::ItemImpl) -> Vec<(String, TypeExpr)> {
    let derefs = block
        .trait_
        .as_ref()
        .is_some_and(|(path, _)| path.segments.last().is_some_and(|last| last.ident == "Deref"));
    let methods = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) if !is_cfg_test(&function.attrs) => {
            Some((plain(&function.sig.ident), TypeExpr::of_return(&function.sig.output)))
        }
        ImplItem::Type(target) if derefs => Some((DEREF.to_owned(), TypeExpr::of(&target.ty))),
        _ => None,
    });
    methods.collect()
}

fn fields_of(fields: &Fields) -> Vec<(String, TypeExpr)> {
    let name =
        |at: usize, field: &syn::Field| field.ident.as_ref().map_or_else(|| at.to_string(), plain);
    fields.iter().enumerate().map(|(at, f)| (name(at, f), TypeExpr::of(&f.ty))).collect()
}

fn methods_of_trait(item: &syn::ItemTrait) -> Vec<(String, TypeExpr)> {
    let functions = item.items.iter().filter_map(|item| match item {
        TraitItem::Fn(function) => Some(&function.sig),
        _ => None,
    });
    functions.map(|sig| (plain(&sig.ident), TypeExpr::of_return(&sig.output))).collect()
}
