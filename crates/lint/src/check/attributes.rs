//! Where attributes may stand, and whether they mark test code.

use syn::{Attribute, Expr};

use super::Checker;
use crate::names::PathRef;
use crate::names::resolve::Target;
use crate::names::types::plain;
use crate::testcode::{is_test_cfg, is_test_name};

/// Attributes that are everywhere and that nobody imports.
const COMMON: &[&str] = &["allow", "cfg", "derive", "doc", "expect", "inline", "must_use", "serde"];

impl Checker<'_> {
    /// Whether the attributes limit what they stand on to tests.
    pub(super) fn is_test(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().any(|attribute| {
            is_test_cfg(&attribute.meta) || self.is_test_attribute(attribute.path())
        })
    }

    /// An import may give a test's name to another attribute, and another name to a test's.
    fn is_test_attribute(&self, path: &syn::Path) -> bool {
        let Some(name) = path.segments.last().map(|last| plain(&last.ident)) else {
            return false;
        };
        if COMMON.contains(&name.as_str()) {
            return false;
        }
        let targets = self.targets(&PathRef::of(path));
        let real = targets.iter().filter_map(|target| match target {
            Target::Extern(path) => path.last(),
            Target::Item { .. } | Target::Module(_) | Target::Generic(_) => None,
        });
        let mut real = real.peekable();
        match real.peek() {
            Some(_) => real.any(|real| is_test_name(real)),
            None => is_test_name(&name),
        }
    }
}

/// The attributes of the items that hold code.
pub(super) fn of_item(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item as I;
    match item {
        I::Const(syn::ItemConst { attrs, .. })
        | I::Enum(syn::ItemEnum { attrs, .. })
        | I::Fn(syn::ItemFn { attrs, .. })
        | I::Impl(syn::ItemImpl { attrs, .. })
        | I::Macro(syn::ItemMacro { attrs, .. })
        | I::Mod(syn::ItemMod { attrs, .. })
        | I::Static(syn::ItemStatic { attrs, .. })
        | I::Struct(syn::ItemStruct { attrs, .. })
        | I::Trait(syn::ItemTrait { attrs, .. }) => attrs,
        _ => &[],
    }
}

/// The attributes of the expressions that people put `#[cfg]` on.
pub(super) fn of_expression(expression: &Expr) -> &[syn::Attribute] {
    use syn::Expr as E;
    match expression {
        // The parser gives the attributes of a statement to its leftmost part.
        E::Assign(syn::ExprAssign { left, .. }) | E::Binary(syn::ExprBinary { left, .. }) => {
            of_expression(left)
        }
        E::Await(syn::ExprAwait { attrs, .. })
        | E::Block(syn::ExprBlock { attrs, .. })
        | E::Call(syn::ExprCall { attrs, .. })
        | E::Closure(syn::ExprClosure { attrs, .. })
        | E::ForLoop(syn::ExprForLoop { attrs, .. })
        | E::If(syn::ExprIf { attrs, .. })
        | E::Loop(syn::ExprLoop { attrs, .. })
        | E::Macro(syn::ExprMacro { attrs, .. })
        | E::Match(syn::ExprMatch { attrs, .. })
        | E::MethodCall(syn::ExprMethodCall { attrs, .. })
        | E::Return(syn::ExprReturn { attrs, .. })
        | E::Try(syn::ExprTry { attrs, .. })
        | E::Unsafe(syn::ExprUnsafe { attrs, .. })
        | E::While(syn::ExprWhile { attrs, .. }) => attrs,
        _ => &[],
    }
}
