//! What counts as test code: it may spawn and leak as it likes.
//!
//! `cfg(test)` and `cfg(all(test, …))`, and functions marked by an attribute whose last segment is
//! a test's: `#[test]`, `#[tokio::test]`, `#[rstest]`. Not `any(test, …)`, which is also built for
//! users, not `not(test)`, and not a module merely called `tests`.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Meta};

use crate::names::types::plain;

const TEST_ATTRIBUTES: &[&str] = &[
    "test",
    "bench",
    "rstest",
    "test_case",
    "test_matrix",
    "quickcheck",
    "proptest",
    "wasm_bindgen_test",
];

/// Whether a `cfg` limits what it stands on to test builds.
pub(crate) fn is_cfg_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| is_test_cfg(&attribute.meta))
}

pub(crate) fn is_test_cfg(meta: &Meta) -> bool {
    let tokens = match meta {
        Meta::List(list) if list.path.is_ident("cfg") => &list.tokens,
        _ => return false,
    };
    requires_test(tokens.clone())
}

/// Whether an attribute of this name marks tests; an import may give the name to another one.
pub(crate) fn is_test_name(name: &str) -> bool {
    TEST_ATTRIBUTES.contains(&name)
}

fn is_test_meta(meta: &Meta) -> bool {
    let last = meta.path().segments.last();
    is_test_cfg(meta) || last.is_some_and(|last| is_test_name(&plain(&last.ident)))
}

/// Whether the tokens between the brackets of an attribute mark test code, by their names alone.
pub(crate) fn is_test_attribute(tokens: TokenStream) -> bool {
    syn::parse2::<Meta>(tokens).is_ok_and(|meta| is_test_meta(&meta))
}

/// Whether a cfg predicate holds in test builds only: `test`, or `all` with such a part.
fn requires_test(predicate: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = predicate.into_iter().collect();
    let parts = tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ','));
    // At the top there is one part; inside `all` any part will do.
    parts.into_iter().any(|part| match part {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(inner)] => {
            word == "all" && requires_test(inner.stream())
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    #[test]
    fn knows_test_code_from_other_code() {
        let excluded: [syn::Attribute; 8] = [
            parse_quote!(#[cfg(test)]),
            parse_quote!(#[cfg(all(test, feature = "x"))]),
            parse_quote!(#[cfg(all(unix, all(test)))]),
            parse_quote!(#[test]),
            parse_quote!(#[tokio::test(flavor = "multi_thread")]),
            parse_quote!(#[rstest]),
            parse_quote!(#[test_case(1)]),
            parse_quote!(#[bench]),
        ];
        for attribute in excluded {
            assert!(super::is_test_meta(&attribute.meta), "{attribute:?}");
        }
        let checked: [syn::Attribute; 8] = [
            parse_quote!(#[cfg(any(test, feature = "x"))]),
            parse_quote!(#[cfg(not(test))]),
            parse_quote!(#[cfg(all(not(test), unix))]),
            parse_quote!(#[cfg(all(any(test, unix)))]),
            parse_quote!(#[cfg(feature = "test")]),
            parse_quote!(#[cfg_attr(test, derive(Debug))]),
            parse_quote!(#[allow(test)]),
            parse_quote!(#[tests]),
        ];
        for attribute in checked {
            assert!(!super::is_test_meta(&attribute.meta), "{attribute:?}");
        }
    }
}
