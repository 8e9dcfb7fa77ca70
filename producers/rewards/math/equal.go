package math

import (
	"math"
	"math/big"
	"math/cmplx"
	"slices"
	"strings"
)

// maxAnswer bounds an answer in bytes; a longer answer is compared as text.
const maxAnswer = 600

// Options say how strict [Equal] is.
type Options struct {
	// Loose takes every expression of the right value. Without it a number must be worked out: where the accepted answer is a number
	// such as 391, 17*23 is wrong, and so are 782/2 and, for 1/2, a fraction that can be shortened: else the question itself would be
	// its answer.
	Loose bool
}

// Equal reports whether an answer equals the accepted answer.
func (o Options) Equal(given, accepted string) bool {
	g, a := cleanAnswer(given), cleanAnswer(accepted)
	if plainText(g.text) == "" || plainText(a.text) == "" {
		return false
	}
	if g.unit != "" && a.unit != "" && g.unit != a.unit && g.unit != percent && a.unit != percent {
		return false
	}
	if plainText(g.text) == plainText(a.text) {
		return sameUnit(g.unit, a.unit)
	}
	if len(g.text) > maxAnswer || len(a.text) > maxAnswer {
		return false
	}
	if x, y := choiceLetter(g.text), choiceLetter(a.text); x != "" && x == y {
		return true
	}
	if !sameUnit(g.unit, a.unit) {
		return false
	}
	if g.unit == percent && a.unit == "" && o.sameAnswer(`(`+g.text+`)/100`, a.text, true) {
		return true // 28% of 0.28
	}
	if a.unit == percent && g.unit == "" && o.sameAnswer(g.text, `(`+a.text+`)/100`, true) && !o.Loose && literalText(g.text) {
		return true
	}
	return o.sameAnswer(g.text, a.text, o.Loose)
}

// Equal is Options{}.Equal: strict.
func Equal(given, accepted string) bool { return Options{}.Equal(given, accepted) }

// sameUnit: a unit may be left out, but not be another. A percent sign may stand behind no other unit's number.
func sameUnit(g, a string) bool { return g == a || g == "" || a == "" }

func literalText(s string) bool {
	n, err := parseExpression(s)
	return err == nil && n.isLiteral()
}

// choiceLetter returns the letter of a choice: C of (C), C. or \text{(C)}.
func choiceLetter(s string) string {
	m := lettered.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return ""
	}
	return m[1]
}

// plainText is a text without space, \text and case, for words and for text that is no expression.
func plainText(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\text`, ""), `\$`, "")
	fields := strings.Fields(s)
	out := strings.Join(fields, "")
	if strings.ContainsFunc(out, func(r rune) bool { return r >= '0' && r <= '9' || strings.ContainsRune(`\^+=*/(<>`, r) }) || len(out) < 3 {
		return out
	}
	return strings.Trim(strings.ToLower(out), "{}\"'")
}

// sameAnswer compares the meaning of two texts.
func (o Options) sameAnswer(g, a string, loose bool) bool {
	gs, as := splitRelation(g), splitRelation(a)
	if len(gs) > 1 || len(as) > 1 {
		return o.sameRelation(gs, as)
	}
	gl, al := splitMembers(g), splitMembers(a)
	if len(gl) != len(al) {
		return false
	}
	if len(gl) > 1 {
		return sameUnordered(gl, al, func(x, y string) bool { return o.sameMember(x, y, loose) })
	}
	return o.sameMember(gl[0], al[0], loose)
}

// splitRelation splits at =, <, > and their like, the signs among the parts, so that < and > point the same way.
func splitRelation(s string) []string {
	s = strings.NewReplacer(`\le `, "<=", `\ge `, ">=", `\le`, "<=", `\ge`, ">=", `\lt`, "<", `\gt`, ">", `\ne `, "!=").Replace(s)
	var out []string
	from := 0
	for i := 0; i < len(s); i++ {
		sign := ""
		for _, t := range []string{"<=", ">=", "!=", "<", ">", "="} {
			if strings.HasPrefix(s[i:], t) {
				sign = t
				break
			}
		}
		if sign == "" {
			continue
		}
		out = append(out, strings.TrimSpace(s[from:i]), sign)
		i += len(sign) - 1
		from = i + 1
	}
	out = append(out, strings.TrimSpace(s[from:]))
	if slices.ContainsFunc(out, func(t string) bool { return t == ">" || t == ">=" }) && !slices.ContainsFunc(out, func(t string) bool { return t == "<" || t == "<=" }) {
		slices.Reverse(out)
		for i, t := range out {
			out[i] = map[string]string{">": "<", ">=": "<="}[t] + strings.Trim(t, ">=")
			if t == "=" || t == "!=" {
				out[i] = t
			}
		}
	}
	return out
}

// sameRelation compares equations and inequalities part by part; an equation may be turned round.
func (o Options) sameRelation(g, a []string) bool {
	if len(g) != len(a) {
		return false
	}
	match := func(g []string) bool {
		for i := range g {
			if i%2 == 1 && g[i] != a[i] || i%2 == 0 && !o.sameMember(g[i], a[i], true) {
				return false
			}
		}
		return true
	}
	if match(g) {
		return true
	}
	if len(g) == 3 && g[1] == "=" {
		return match([]string{g[2], "=", g[0]})
	}
	return false
}

// splitMembers returns the members of a list that stands in no brackets: "1, 2", "1 and 2", "1 or 2", the parts of a union, and both values
// of a plus-minus.
func splitMembers(s string) []string {
	s = strings.NewReplacer(`\text{ and }`, ",", `\text{and}`, ",", " and ", ",", `\text{ or }`, ",", `\text{or}`, ",", " or ", ",", ";", ",").Replace(s)
	var out []string
	for _, p := range splitOutside(s, ",") {
		for _, u := range splitOutside(p, `\cup`) {
			u = strings.TrimSpace(u)
			if strings.Count(u, `\pm`) == 1 {
				out = append(out, strings.Replace(u, `\pm`, "+", 1), strings.Replace(u, `\pm`, "-", 1))
				continue
			}
			out = append(out, u)
		}
	}
	return out
}

// splitOutside cuts at a separator outside all brackets.
func splitOutside(s, by string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth == 0 && strings.HasPrefix(s[i:], by) {
			out = append(out, s[from:i])
			i += len(by) - 1
			from = i + 1
		}
	}
	return append(out, s[from:])
}

// sameUnordered reports whether the members of two lists are the same in any order.
func sameUnordered(g, a []string, same func(x, y string) bool) bool {
	taken := make([]bool, len(a))
next:
	for _, x := range g {
		for i, y := range a {
			if !taken[i] && same(x, y) {
				taken[i] = true
				continue next
			}
		}
		return false
	}
	return len(g) == len(a)
}

// sameMember compares two members: collections with collections, expressions with expressions, words with words.
func (o Options) sameMember(g, a string, loose bool) bool {
	g, a = strings.TrimSpace(g), strings.TrimSpace(a)
	gc, ac := parseCollection(g), parseCollection(a)
	if (gc == nil) != (ac == nil) {
		return false
	}
	if gc != nil {
		if gc.open != ac.open || gc.end != ac.end || len(gc.members) != len(ac.members) {
			return false
		}
		if gc.open == `\{` {
			return sameUnordered(gc.members, ac.members, func(x, y string) bool { return o.sameMember(x, y, loose) })
		}
		for i := range gc.members {
			if !o.sameMember(gc.members[i], ac.members[i], loose) {
				return false
			}
		}
		return true
	}
	x, err := parseExpression(g)
	if err != nil {
		return plainText(g) != "" && plainText(g) == plainText(a)
	}
	y, err := parseExpression(a)
	if err != nil {
		return plainText(g) == plainText(a)
	}
	return sameExpression(x, y, loose)
}

// group is a tuple, an interval, a set or a matrix.
type group struct {
	open, end string
	members   []string
}

// parseCollection reads brackets around members; nil where a text is no collection, such as a sum in brackets.
func parseCollection(s string) *group {
	for _, kind := range []string{"pmatrix", "bmatrix", "vmatrix", "matrix"} {
		begin, end := `\begin{`+kind+`}`, `\end{`+kind+`}`
		if strings.HasPrefix(s, begin) && strings.HasSuffix(s, end) && strings.Count(s, begin) == 1 && len(s) >= len(begin)+len(end) {
			g := &group{open: "matrix", end: "matrix"}
			for row := range strings.SplitSeq(s[len(begin):len(s)-len(end)], `\\`) {
				if strings.TrimSpace(row) != "" {
					g.members = append(g.members, "("+strings.ReplaceAll(row, "&", ",")+",)")
				}
			}
			return g
		}
	}
	g := &group{}
	for _, open := range []string{`\{`, "(", "["} {
		if strings.HasPrefix(s, open) {
			g.open = open
			break
		}
	}
	for _, end := range []string{`\}`, ")", "]"} {
		if g.open != "" && strings.HasSuffix(s, end) && len(s) >= len(g.open)+len(end) {
			g.end = end
			break
		}
	}
	if g.open == "" || g.end == "" || (g.open == `\{`) != (g.end == `\}`) {
		return nil
	}
	g.members = splitOutside(s[len(g.open):len(s)-len(g.end)], ",")
	if n := len(g.members); n > 1 && strings.TrimSpace(g.members[n-1]) == "" {
		g.members = g.members[:n-1] // a matrix's row
		if len(g.members) == 1 {
			return g
		}
	}
	if len(g.members) == 1 && g.open != `\{` || !areBalanced(g.members) {
		return nil
	}
	return g
}

// areBalanced reports that no member closes a bracket that another opened, as in (1)(2).
func areBalanced(members []string) bool {
	for _, m := range members {
		depth := 0
		for _, c := range m {
			switch c {
			case '(', '[', '{':
				depth++
			case ')', ']', '}':
				if depth--; depth < 0 {
					return false
				}
			}
		}
		if depth != 0 {
			return false
		}
	}
	return true
}

// points at which expressions are compared, by the order of their variables' names: not near each other, nor near a value that hides a
// difference.
var points = []complex128{0.7390851, 1.6180339, 2.2360679, 3.3166247, 0.5772156, 1.2020569, 2.6854520, 4.6692016, 0.9159655, 1.9021605}

// sameExpression compares two expressions.
func sameExpression(g, a *node, loose bool) bool {
	x, exactG := g.exactValue()
	y, exactA := a.exactValue()
	if exactG && exactA {
		return x.Cmp(y) == 0 && (loose || !a.isLiteral() || workedOut(g, y))
	}
	if exactA && a.isLiteral() && !loose {
		return false // a number that is left to work out
	}
	if g.op == infinity || a.op == infinity {
		return g.op == a.op
	}
	if g.op == negate && a.op == negate && g.kids[0].op == infinity && a.kids[0].op == infinity {
		return true
	}
	in, of := map[string]bool{}, map[string]bool{}
	g.addVariables(in)
	a.addVariables(of)
	names := []string{}
	for name := range in {
		names = append(names, name)
	}
	for name := range of {
		if !in[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for round := range 6 {
		values := map[string]complex128{"pi": math.Pi, "i": 1i, "e": math.E}
		for i, name := range names {
			if _, fixed := values[name]; !fixed {
				values[name] = points[(3*i+round)%len(points)] * complex(float64(1+round/2), 0)
			}
		}
		if !isNear(g.valueAt(values), a.valueAt(values)) {
			return false
		}
	}
	return true
}

// workedOut says that a number is written as a number: whole where it is whole, else as a decimal or a fraction in lowest terms.
func workedOut(g *node, value *big.Rat) bool {
	if !g.isLiteral() {
		return false
	}
	if value.IsInt() {
		return g.op != divide && !(g.op == negate && g.kids[0].op == divide) && g.name != mixed
	}
	return g.isReduced()
}

// isNear compares to the last digits of a float64; a NaN is near nothing.
func isNear(x, y complex128) bool {
	if cmplx.IsNaN(x) || cmplx.IsNaN(y) || cmplx.IsInf(x) || cmplx.IsInf(y) {
		return false
	}
	return cmplx.Abs(x-y) <= 1e-10*max(1e-3, cmplx.Abs(x), cmplx.Abs(y))
}
