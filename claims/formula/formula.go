// Package formula evaluates formulas over published figures, and writes them out with those figures.
package formula

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims/row"
)

// Formula is a formula such as "( sent − received ) ÷ sent", with spaces between its words: + − × ÷ √ ( ),
// numbers, constants, and names for which the caller has values and texts.
type Formula string

type constant struct {
	value float64
	text  string
}

// constants returns the named numbers, and how they are printed.
func constants() map[string]constant {
	return map[string]constant{
		"year":     {row.Year, "1 year"},
		"root2":    {math.Sqrt2, "√2"},
		"smallest": {64, "64-byte frame"},
		"gap":      {20, "20 of preamble and gap"}, // on the wire, in bytes
		"light":    {299_792_458, "299,792 km/s"},  // in a vacuum
		"glass":    {204_190_000, "204,190 km/s"},  // light in fibre
		"wire":     {24, "24 bytes"},               // the gap and a checksum
		"all":      {1, "100%"},
		"bus":      {8e6, "8 bytes"},                            // one memory transfer; in MT/s
		"wide":     {1e9 / 8, "1 bit"},                          // one transfer on one PCIe lane; in GT/s
		"bits":     {1, "8"},                                    // all values are in bytes
		"head":     {1024, "1 KiB"},                             // of a reply, at most
		"around":   {90, "90 bytes"},                            // headers, preamble and gap of a packet
		"tcp":      {TCP1500, row.Percent(TCP1500)},             // the part of a link that is payload
		"framing":  {1/TCP1500 - 1, row.Percent(1/TCP1500 - 1)}, // what frames add to it
	}
}

// TCP1500 and TCP9000 are the part of a link that TCP with timestamps can fill with payload, by MTU: the
// payload of a segment over its frame with preamble, checksum and gap.
const (
	TCP1500 = 1448. / 1538
	TCP9000 = 8948. / 9038
)

// Names returns the names in the formula, for which the caller must have values.
func (f Formula) Names() []string {
	var names []string
	for _, word := range strings.Fields(string(f)) {
		_, known := constants()[word]
		_, err := strconv.ParseFloat(word, 64)
		if !known && err != nil && !strings.Contains("+−×÷√()", word) && !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	return names
}

// Alternatives returns the formulas that " or " separates.
func (f Formula) Alternatives() []Formula {
	var all []Formula
	for s := range strings.SplitSeq(string(f), " or ") {
		if s != "" {
			all = append(all, Formula(s))
		}
	}
	return all
}

// Text returns the formula with figures in place of names.
func (f Formula) Text(of func(name string) string) string {
	words, names := strings.Fields(string(f)), f.Names()
	for k, word := range words {
		if c, ok := constants()[word]; ok {
			words[k] = c.text
		} else if slices.Contains(names, word) {
			words[k] = of(word)
		}
	}
	return strings.NewReplacer("√ ", "√", "( ", "(", " )", ")").Replace(strings.Join(words, " "))
}

// Value evaluates the formula. Except for its signs, it is a Go expression.
func (f Formula) Value(of func(name string) row.Span) row.Span {
	e, err := parser.ParseExpr(strings.NewReplacer("−", "-", "×", "*", "÷", "/", "√", "root").Replace(string(f)))
	if err != nil {
		panic(err) // a formula of ours is wrong
	}
	return calculated(e, of)
}

func calculated(e ast.Expr, of func(name string) row.Span) row.Span {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return calculated(e.X, of)
	case *ast.CallExpr: // the root
		v := calculated(e.Args[0], of)
		return row.Span{Low: math.Sqrt(v.Low), Mid: math.Sqrt(v.Mid), High: math.Sqrt(v.High)}
	case *ast.BinaryExpr:
		return row.Combine(calculated(e.X, of), calculated(e.Y, of), operation(e.Op))
	case *ast.BasicLit:
		v, _ := strconv.ParseFloat(e.Value, 64) // the parser has checked it
		return row.Exactly(v)
	default:
		name := e.(*ast.Ident).Name
		if known, ok := constants()[name]; ok {
			return row.Exactly(known.value)
		}
		return of(name)
	}
}

func operation(sign token.Token) func(a, b float64) float64 {
	switch sign {
	case token.ADD:
		return func(a, b float64) float64 { return a + b }
	case token.SUB:
		return func(a, b float64) float64 { return a - b }
	case token.MUL:
		return func(a, b float64) float64 { return a * b }
	default:
		return func(a, b float64) float64 { return a / b }
	}
}
