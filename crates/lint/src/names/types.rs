//! Types as written, reduced to what inference needs: a path and its arguments.

use syn::{GenericArgument, PathArguments, Type, TypeParamBound};

use super::PathRef;

/// A type without references and lifetimes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum TypeExpr {
    /// Something this lint does not reason about.
    #[default]
    Other,
    Unit,
    Tuple(Vec<TypeExpr>),
    Path(PathRef, Vec<TypeExpr>),
}

impl TypeExpr {
    pub(crate) fn of(ty: &Type) -> Self {
        match ty {
            Type::Reference(inner) => Self::of(&inner.elem),
            Type::Ptr(inner) => Self::of(&inner.elem),
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::Group(inner) => Self::of(&inner.elem),
            Type::Slice(inner) => Self::of(&inner.elem),
            Type::Array(inner) => Self::of(&inner.elem),
            Type::Tuple(tuple) if tuple.elems.is_empty() => Self::Unit,
            Type::Tuple(tuple) => Self::Tuple(tuple.elems.iter().map(Self::of).collect()),
            Type::ImplTrait(bounds) => Self::of_bounds(&bounds.bounds),
            Type::TraitObject(bounds) => Self::of_bounds(&bounds.bounds),
            Type::Path(path) if path.qself.is_none() => Self::of_path(&path.path),
            _ => Self::Other,
        }
    }

    pub(crate) fn of_return(output: &syn::ReturnType) -> Self {
        match output {
            syn::ReturnType::Default => Self::Unit,
            syn::ReturnType::Type(_, ty) => Self::of(ty),
        }
    }

    /// The first bound that says something; markers do not.
    pub(crate) fn of_bounds<'a>(bounds: impl IntoIterator<Item = &'a TypeParamBound>) -> Self {
        let traits = bounds.into_iter().filter_map(|bound| match bound {
            TypeParamBound::Trait(bound) => Some(&bound.path),
            _ => None,
        });
        let telling = |path: &&syn::Path| {
            path.segments.last().is_some_and(|last| {
                !["Send", "Sync", "Unpin", "Sized", "Clone", "Copy", "Debug"]
                    .iter()
                    .any(|marker| last.ident == marker)
            })
        };
        traits.into_iter().find(telling).map_or(Self::Other, Self::of_path)
    }

    pub(crate) fn of_path(path: &syn::Path) -> Self {
        let arguments = match path.segments.last().map(|last| &last.arguments) {
            Some(PathArguments::AngleBracketed(list)) => {
                list.args.iter().filter_map(type_argument).collect()
            }
            _ => Vec::new(),
        };
        Self::Path(PathRef::of(path), arguments)
    }
}

impl PathRef {
    pub(crate) fn of(path: &syn::Path) -> Self {
        Self {
            leading: path.leading_colon.is_some(),
            segments: path.segments.iter().map(|segment| plain(&segment.ident)).collect(),
        }
    }
}

/// The name without `r#`.
pub(crate) fn plain(ident: &syn::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map(str::to_owned).unwrap_or(text)
}

fn type_argument(argument: &GenericArgument) -> Option<TypeExpr> {
    match argument {
        GenericArgument::Type(ty) => Some(TypeExpr::of(ty)),
        // `Future<Output = T>`, `Deref<Target = T>`: what one gets out of it.
        GenericArgument::AssocType(bound) => Some(TypeExpr::of(&bound.ty)),
        _ => None,
    }
}
