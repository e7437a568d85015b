//! Where attributes may stand, to see whether they mark test code.

use syn::Expr;

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
