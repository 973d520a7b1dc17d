//! Graphs drawn for Graphviz.

use std::fmt::Write as _;

use super::meta_graph::MetaGraph;
use super::node::{Input, Node};

/// The deepest scope of names that gets a box of its own. Graphviz takes long for deeper ones.
const SCOPES_MAX: usize = 6;

impl MetaGraph {
    /// Returns the graph for Graphviz: an ellipse a node, a box a scope of names, dashed lines for control
    /// inputs, red for inputs that are not there. Functions are not drawn.
    ///
    /// ```no_run
    /// # let graph = percolator_tensorflow::MetaGraph::open("model.meta")?;
    /// std::fs::write("model.dot", graph.to_dot()).unwrap(); // dot -Tsvg model.dot > model.svg
    /// # Ok::<(), percolator_tensorflow::GraphError>(())
    /// ```
    #[must_use]
    pub fn to_dot(&self) -> String {
        self.dot_of(self.nodes())
    }

    /// Returns some nodes for Graphviz, those that a signature [needs](Self::needed_for) for example. Their
    /// inputs that are not among them are grey.
    pub fn dot_of<'a>(&'a self, nodes: impl IntoIterator<Item = Node<'a>>) -> String {
        let mut drawn: Vec<(usize, Node<'a>)> =
            nodes.into_iter().filter_map(|node| Some((self.node_number(node.name())?, node))).collect();
        drawn.sort_by(|(_, one), (_, other)| scopes(one.name()).cmp(scopes(other.name())));
        drawn.dedup_by_key(|(number, _)| *number);
        let mut out = String::from("digraph graph_def {\n  rankdir=BT;\n  node [shape=ellipse];\n");
        draw_nodes(&drawn, &mut out);
        let mut numbers: Vec<usize> = drawn.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        let mut others = 0_usize;
        for (number, node) in &drawn {
            for input in node.inputs() {
                let from = self.node_number(input.node());
                let style = if input.is_control() { "style=dashed" } else { "" };
                let label = match input {
                    Input::Tensor { output: output @ 1.., .. } => format!("label=\"{output}\" "),
                    _ => String::new(),
                };
                let id = match from.filter(|from| numbers.binary_search(from).is_ok()) {
                    Some(from) => format!("n{from}"),
                    None => {
                        let colour = if from.is_some() { "grey" } else { "red" };
                        let name = quoted(input.node());
                        let _ = writeln!(out, "  o{others} [label={name} color={colour}];");
                        others += 1;
                        format!("o{}", others - 1)
                    }
                };
                let _ = writeln!(out, "  {id} -> n{number} [{label}{style}];");
            }
        }
        out.push_str("}\n");
        out
    }
}

/// The scopes of a name, and the name last.
fn scopes(name: &str) -> impl Iterator<Item = &str> {
    name.splitn(SCOPES_MAX + 1, '/')
}

/// Draws nodes that are sorted by their scopes.
fn draw_nodes(drawn: &[(usize, Node<'_>)], out: &mut String) {
    let mut open: Vec<&str> = Vec::new();
    let mut clusters = 0_usize;
    for (number, node) in drawn {
        let mut path: Vec<&str> = scopes(node.name()).collect();
        path.pop();
        let shared = open.iter().zip(&path).take_while(|(one, other)| one == other).count();
        for _ in shared..open.len() {
            out.push_str("  }\n");
        }
        open.truncate(shared);
        for scope in &path[shared..] {
            let label = quoted(scope);
            let _ = writeln!(out, "  subgraph cluster_{clusters} {{\n  label={label};");
            clusters += 1;
            open.push(scope);
        }
        let name = node.name().rsplit('/').next().unwrap_or_default();
        let label = quoted(&format!("{name}\n{}", node.op()));
        let colour = match node.op() {
            "Placeholder" | "PlaceholderV2" => " style=filled fillcolor=lightblue",
            "Const" => " style=filled fillcolor=lightgrey",
            "VariableV2" | "Variable" | "VarHandleOp" => " style=filled fillcolor=khaki",
            _ => "",
        };
        let tooltip = quoted(node.name());
        let _ = writeln!(out, "  n{number} [label={label} tooltip={tooltip}{colour}];");
    }
    open.iter().for_each(|_| out.push_str("  }\n"));
}

/// Text as Graphviz has it in quotes, where a backslash begins an escape.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push('\u{fffd}'),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}
