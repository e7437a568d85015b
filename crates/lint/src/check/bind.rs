//! Variables get their types from the patterns that bind them.

use syn::{Member, Pat};

use super::Checker;
use crate::infer::Ty;
use crate::names::types::{TypeExpr, plain};

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
            Pat::TupleStruct(tuple) => {
                let through = matches!(
                    tuple
                        .path
                        .segments
                        .last()
                        .map(|last| last.ident.to_string())
                        .as_deref(),
                    Some("Some" | "Ok" | "Ready")
                );
                let ty = if through { ty } else { &Ty::Unknown };
                tuple
                    .elems
                    .iter()
                    .for_each(|element| self.bind(element, ty));
            }
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|e| self.bind(e, &Ty::Unknown)),
            Pat::Slice(slice) => slice
                .elems
                .iter()
                .for_each(|element| self.bind(element, ty)),
            Pat::Struct(fields) => {
                let owner = match self.type_of(&TypeExpr::of_path(&fields.path)) {
                    Ty::Local(module, name) => Some((module, name)),
                    _ => None,
                };
                for field in &fields.fields {
                    let member = match &field.member {
                        Member::Named(name) => plain(name),
                        Member::Unnamed(index) => index.index.to_string(),
                    };
                    let ty = owner.as_ref().map_or(Ty::Unknown, |(module, name)| {
                        self.field_type(*module, name, &member)
                    });
                    self.bind(&field.pat, &ty);
                }
            }
            _ => {}
        }
    }
}
