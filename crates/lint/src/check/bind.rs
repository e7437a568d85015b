//! Variables get their types from the patterns that bind them.

use syn::Pat;

use super::Checker;
use crate::infer::{Ty, member_name};
use crate::names::types::{TypeExpr, plain};
use crate::names::{ModuleId, PathRef};

impl Checker<'_> {
    /// Gives the names in a pattern their types, as far as the pattern shows them.
    pub(crate) fn bind(&mut self, pattern: &Pat, ty: &Ty) {
        match pattern {
            Pat::Ident(name) => {
                self.declare(plain(&name.ident), ty.clone());
                if let Some((_, inner)) = &name.subpat {
                    self.bind(inner, ty);
                }
            }
            Pat::Type(typed) => {
                let written = self.type_of(&TypeExpr::of(&typed.ty));
                let known = !matches!(written, Ty::Unknown);
                self.bind(&typed.pat, if known { &written } else { ty });
            }
            Pat::Paren(inner) => self.bind(&inner.pat, ty),
            Pat::Reference(inner) => self.bind(&inner.pat, ty),
            Pat::Guard(inner) => self.bind(&inner.pat, ty),
            Pat::Or(choices) => choices.cases.iter().for_each(|case| self.bind(case, ty)),
            Pat::TupleStruct(tuple) => self.bind_tuple_struct(tuple, ty),
            Pat::Tuple(tuple) => {
                let parts = if let Ty::Tuple(parts) = ty { &parts[..] } else { &[] };
                for (at, element) in tuple.elems.iter().enumerate() {
                    self.bind(element, parts.get(at).unwrap_or(&Ty::Unknown));
                }
            }
            Pat::Slice(slice) => slice.elems.iter().for_each(|element| self.bind(element, ty)),
            Pat::Struct(fields) => {
                let owner = self.owner(&fields.path);
                for field in &fields.fields {
                    let ty = self.part(owner.as_ref(), &member_name(&field.member));
                    self.bind(&field.pat, &ty);
                }
            }
            _ => {}
        }
    }

    fn bind_tuple_struct(&mut self, tuple: &syn::PatTupleStruct, ty: &Ty) {
        let last = tuple.path.segments.last().map(|last| plain(&last.ident)).unwrap_or_default();
        let through = matches!(last.as_str(), "Some" | "Ok" | "Ready");
        let owner = if through { None } else { self.owner(&tuple.path) };
        for (at, element) in tuple.elems.iter().enumerate() {
            let part =
                if through { ty.clone() } else { self.part(owner.as_ref(), &at.to_string()) };
            self.bind(element, &part);
        }
    }

    /// The type that a pattern's path names, and the variant if it is an enum's.
    pub(super) fn owner(&self, path: &syn::Path) -> Option<(ModuleId, String, String)> {
        if let Ty::Local(module, name) = self.type_of(&TypeExpr::of_path(path)) {
            return Some((module, name, String::new()));
        }
        let mut whole = PathRef::of(path);
        let variant = whole.segments.pop()?;
        match self.type_of(&TypeExpr::Path(whole, Vec::new())) {
            Ty::Local(module, name) => Some((module, name, format!("{variant}."))),
            _ => None,
        }
    }

    pub(super) fn part(&self, owner: Option<&(ModuleId, String, String)>, member: &str) -> Ty {
        owner.map_or(Ty::Unknown, |(module, name, variant)| {
            self.field_type(*module, name, &format!("{variant}{member}"))
        })
    }
}
