//! Values that come to be by the type that is expected: `collect()`, `Default::default()`.
//!
//! What is expected is written nearby: on the `let`, in the signature, on the field, behind the
//! `::<`. Wrappers are seen through, as everywhere.

use syn::spanned::Spanned as _;
use syn::{Expr, Stmt};

use super::Checker;
use crate::infer::{Ty, member_name};
use crate::known;
use crate::names::PathRef;
use crate::names::types::{TypeExpr, plain};

impl Checker<'_> {
    /// Checks an expression whose value becomes a `ty`.
    pub(super) fn check_expected(&mut self, expression: &Expr, ty: &Ty) {
        if let (Ty::Tuple(parts), Expr::Tuple(values)) = (ty, expression) {
            for (part, value) in parts.iter().zip(&values.elems) {
                self.check_expected(value, part);
            }
        }
        let is_pair = |ty: &Ty| matches!(ty, Ty::Tuple(parts) if parts.contains(&Ty::Queue));
        if !matches!(ty, Ty::Queue | Ty::Spawner) && !is_pair(ty) {
            return;
        }
        match expression {
            Expr::Paren(inner) => self.check_expected(&inner.expr, ty),
            Expr::Group(inner) => self.check_expected(&inner.expr, ty),
            Expr::Block(inner) => self.check_expected_block(&inner.block, ty),
            Expr::Unsafe(inner) => self.check_expected_block(&inner.block, ty),
            Expr::Async(inner) => self.check_expected_block(&inner.block, ty),
            Expr::Await(inner) => self.check_expected(&inner.base, ty),
            Expr::Closure(inner) => self.check_expected(&inner.body, ty),
            Expr::Match(choice) => {
                choice.arms.iter().for_each(|arm| self.check_expected(&arm.body, ty));
            }
            Expr::If(branches) => {
                self.check_expected_block(&branches.then_branch, ty);
                if let Some((_, otherwise)) = &branches.else_branch {
                    self.check_expected(otherwise, ty);
                }
            }
            Expr::Call(call) => self.check_expected_call(call, ty),
            Expr::MethodCall(call) if call.method == "collect" && call.turbofish.is_none() => {
                self.report_collected(call.method.span(), ty);
            }
            Expr::Path(path) if is_default(path) => self.report_default(expression, ty),
            _ => {}
        }
    }

    pub(super) fn check_expected_block(&mut self, block: &syn::Block, ty: &Ty) {
        if let Some(Stmt::Expr(value, None)) = block.stmts.last() {
            self.check_expected(value, ty);
        }
    }

    fn check_expected_call(&mut self, call: &syn::ExprCall, ty: &Ty) {
        let Expr::Path(function) = &*call.func else {
            return;
        };
        if is_default(function) {
            return self.report_default(&call.func, ty);
        }
        let names = PathRef::of(&function.path).segments;
        match &names[..] {
            [.., owner, name] if owner == "FromIterator" && name == "from_iter" => {
                self.report_collected(function.span(), ty);
            }
            [.., owner, name] if known::is_wrapper(owner) && is_wrapping(name) => {
                call.args.iter().for_each(|argument| self.check_expected(argument, ty));
            }
            [name] if matches!(name.as_str(), "Ok" | "Some") => {
                call.args.iter().for_each(|argument| self.check_expected(argument, ty));
            }
            _ => {}
        }
    }

    /// `collect::<JoinSet<_>>()`, as a method and as a path.
    pub(super) fn check_collected(
        &mut self,
        span: proc_macro2::Span,
        arguments: &syn::AngleBracketedGenericArguments,
    ) {
        for argument in &arguments.args {
            if let syn::GenericArgument::Type(written) = argument {
                let ty = self.type_of(&TypeExpr::of(written));
                self.report_collected(span, &ty);
            }
        }
    }

    /// `Arc::<SegQueue<u32>>::default`
    pub(super) fn check_wrapped_default(&mut self, path: &syn::ExprPath) {
        if !is_default(path) {
            return;
        }
        for segment in &path.path.segments {
            let syn::PathArguments::AngleBracketed(of) = &segment.arguments else {
                continue;
            };
            for argument in &of.args {
                if let syn::GenericArgument::Type(written) = argument
                    && self.type_of(&TypeExpr::of(written)) == Ty::Queue
                {
                    self.report_queue(path.span(), "the default");
                }
            }
        }
    }

    /// The fields of a struct literal: each is expected to be what its declaration says.
    pub(super) fn check_literal(&mut self, literal: &syn::ExprStruct) {
        let Ty::Local(module, name) = self.type_of(&TypeExpr::of_path(&literal.path)) else {
            return;
        };
        for field in &literal.fields {
            let ty = self.field_type(module, &name, &member_name(&field.member));
            self.check_expected(&field.expr, &ty);
        }
    }

    /// The same for `Wrapped(…)` and `Kind::Many(…)`.
    pub(super) fn check_constructed(&mut self, call: &syn::ExprCall) {
        let Expr::Path(path) = &*call.func else {
            return;
        };
        let is_type = path
            .path
            .segments
            .last()
            .is_some_and(|last| plain(&last.ident).starts_with(char::is_uppercase));
        if !is_type || call.args.is_empty() {
            return;
        }
        if let Some(owner) = self.owner(&path.path) {
            for (at, argument) in call.args.iter().enumerate() {
                let ty = self.part(Some(&owner), &at.to_string());
                self.check_expected(argument, &ty);
            }
        }
    }

    /// `#[derive(Default)]` makes a value of each field.
    pub(super) fn check_derived_default(&mut self, item: &syn::ItemStruct) {
        let derives = |attribute: &syn::Attribute| match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("derive") => {
                list.tokens.clone().into_iter().any(|token| token.to_string() == "Default")
            }
            _ => false,
        };
        if !item.attrs.iter().any(derives) {
            return;
        }
        for field in &item.fields {
            let ty = self.type_of(&TypeExpr::of(&field.ty));
            if ty == Ty::Queue {
                self.report_queue(field.ty.span(), "the derived default");
            }
        }
    }

    fn report_collected(&mut self, span: proc_macro2::Span, ty: &Ty) {
        match ty {
            Ty::Queue => self.report_queue(span, "`collect`"),
            Ty::Spawner => self.report_spawn(span, "collect", false),
            _ => {}
        }
    }

    fn report_default(&mut self, expression: &Expr, ty: &Ty) {
        if *ty != Ty::Spawner {
            self.report_queue(expression.span(), "the default");
        }
    }
}

/// `Default::default`, `Arc::default`
pub(super) fn is_default(path: &syn::ExprPath) -> bool {
    let names: Vec<String> = path.path.segments.iter().map(|s| plain(&s.ident)).collect();
    matches!(&names[..], [.., owner, name]
        if name == "default" && (owner == "Default" || known::is_wrapper(owner)))
}

fn is_wrapping(function: &str) -> bool {
    matches!(function, "new" | "from" | "pin")
}
