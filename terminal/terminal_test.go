package terminal

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// terminalOf opens a terminal with this many columns.
func terminalOf(t *testing.T, columns uint16) *os.File {
	t.Helper()
	f, _ := seen(t, columns)
	return f
}

// seen opens a terminal with this many columns, and its other end.
func seen(t *testing.T, columns uint16) (f, controller *os.File) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = controller.Close() })
	fd := int(controller.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err = unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	return f, controller
}

// Errors and notes fold between words. A line that renews itself does not, and neither does output that no
// terminal reads.
func TestFolded(t *testing.T) {
	t.Setenv("COLUMNS", "")
	f, controller := seen(t, 60)
	w := Folded(f)
	if got := Of(w); got.Columns != 60 {
		t.Errorf("it has %d columns", got.Columns)
	}
	long := strings.Repeat("word ", 13)
	for _, c := range []struct{ text, want string }{
		{long + "end\nshort\n", strings.Repeat("word ", 11) + "word\r\nword end\r\nshort\r\n"},
		{"\r\x1b[K" + long, "\r\x1b[K" + long},
		{"no end of line", "no end of line"},
	} {
		n, err := io.WriteString(w, c.text)
		got := make([]byte, len(c.want))
		if _, rerr := io.ReadFull(controller, got); n != len(c.text) || err != nil || rerr != nil || string(got) != c.want {
			t.Errorf("%q: %q, %d %v %v, want %q", c.text, got, n, err, rerr, c.want)
		}
	}
	var b strings.Builder
	if _, err := io.WriteString(Folded(&b), long); err != nil || b.String() != long {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name    string
		window  uint16 // 0: no terminal
		columns string
		noColor string
		term    string
		want    Terminal
	}{
		{"a pipe", 0, "", "", "xterm", Terminal{100, false}},
		{"a pipe with COLUMNS", 0, "72", "", "xterm", Terminal{72, false}},
		{"a terminal", 81, "", "", "xterm", Terminal{81, true}},
		{"a narrow one", 40, "", "", "xterm", Terminal{60, true}},
		{"a wide one", 300, "", "", "xterm", Terminal{200, true}},
		{"COLUMNS goes first", 81, "120", "", "xterm", Terminal{120, true}},
		{"COLUMNS that is no number", 81, "wide", "", "xterm", Terminal{81, true}},
		{"COLUMNS that is not above 0", 81, "-5", "", "xterm", Terminal{81, true}},
		{"NO_COLOR", 81, "", "1", "xterm", Terminal{81, false}},
		{"dumb", 81, "", "", "dumb", Terminal{81, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("COLUMNS", c.columns)
			t.Setenv("NO_COLOR", c.noColor)
			t.Setenv("TERM", c.term)
			var got Terminal
			if c.window > 0 {
				got = Of(terminalOf(t, c.window))
			} else {
				got = Of(&strings.Builder{})
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestFold(t *testing.T) {
	for _, c := range []struct{ head, text, want string }{
		{"- ", "one two three four five six", "- one two three four\n  five six\n"},
		{"", "", "\n"},
		{"cpus: ", "0,2,4,6,8,10,12,14,16,18,20,22", "cpus: 0,2,4,6,8,10,12,14,\n      16,18,20,22\n"},
		{"", "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwx\nyz\n"},
		{"", "fifteen of these [10\u00a011]", "fifteen of these [10 11]\n"},
		{"", "\x1b[31mthis is an error in red\x1b[0m and more", "\x1b[31mthis is an error in red\x1b[0m\nand more\n"},
		{"", "it \x1b[31mis a longer error in red\x1b[0m",
			"it \x1b[31mis a longer error in\x1b[0m\n\x1b[31mred\x1b[0m\n"},
	} {
		if got := (Terminal{Columns: 24}).Fold(c.head, c.text); got != c.want {
			t.Errorf("Fold(%q, %q) = %q, want %q", c.head, c.text, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"CPU", "source", "count", "what to do"}, Figures: []int{0, 2}, Rows: [][]string{
		{"4", "rcu_preempt", "3", "bind it to the housekeeping CPUs"},
		{"10", "virtio0-input.0", "1200", "move it by its smp_affinity_list"},
		{"11", "no run used"}}}
	for columns, want := range map[int]string{
		100: `CPU  source           count  what to do
  4  rcu_preempt          3  bind it to the housekeeping CPUs
 10  virtio0-input.0   1200  move it by its smp_affinity_list
11   no run used
`,
		62: `CPU  source           count  what to do
  4  rcu_preempt          3  bind it to the housekeeping CPUs
 10  virtio0-input.0   1200  move it by its smp_affinity_list
11   no run used
`,
		60: `CPU  source           count
    what to do
  4  rcu_preempt          3
    bind it to the housekeeping CPUs
 10  virtio0-input.0   1200
    move it by its smp_affinity_list
11   no run used
`} {
		if diff := cmp.Diff(want, Terminal{Columns: columns}.Table(table)); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", columns, diff)
		}
	}
	figures := Table{Head: []string{"cell", "P50", "P99", "max"}, Figures: []int{1, 2, 3}, Rows: [][]string{
		{"quiet-floating-bridge", "10.5", "120.25", "99,999,999,999"},
		{"noisy-lane-express", "9.75", "11.00", "111,111"}}}
	const want = `cell                    P50     P99
quiet-floating-bridge  10.5  120.25
noisy-lane-express     9.75   11.00

cell                              max
quiet-floating-bridge  99,999,999,999
noisy-lane-express            111,111
`
	if diff := cmp.Diff(want, Terminal{Columns: 44}.Table(figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

// Whatever the table and the terminal, no line is too wide, no colour leaves its line, and no character is
// lost.
func TestTableFits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		terminal := Terminal{Columns: rapid.IntRange(Least, Most).Draw(r, "columns"), Colour: rapid.Bool().Draw(r, "colour")}
		cell := rapid.Custom(func(r *rapid.T) string {
			text := rapid.StringMatching(`[a-z0-9/,-]{0,20}( [a-zµ測\x{301}]{1,50}){0,6}`).Draw(r, "cell")
			if rapid.Bool().Draw(r, "red") {
				text = terminal.Red(text)
			}
			return text
		})
		figure := rapid.StringMatching(`[0-9.,]{1,14}`)
		table := Table{Head: []string{"name"}}
		for k := range rapid.IntRange(0, 8).Draw(r, "more") {
			table.Head = append(table.Head, fmt.Sprint("head", k))
			if rapid.Bool().Draw(r, "figure") {
				table.Figures = append(table.Figures, k+1)
			}
		}
		for range rapid.IntRange(0, 4).Draw(r, "rows") {
			row := []string{cell.Draw(r, "first")}
			for k := range table.Head[1:] {
				if slices.Contains(table.Figures, k+1) {
					row = append(row, figure.Draw(r, "figure"))
				} else {
					row = append(row, cell.Draw(r, "text"))
				}
			}
			table.Rows = append(table.Rows, row)
		}
		got := terminal.Table(table)
		for line := range strings.Lines(got) {
			if Width(strings.TrimSuffix(line, "\n")) > terminal.Columns {
				r.Errorf("more than %d columns: %q", terminal.Columns, line)
			}
			if starts := strings.Count(line, "\x1b["); starts != 2*strings.Count(line, plain) {
				r.Errorf("a colour goes on: %q", line)
			}
		}
		missing := map[rune]int{}
		for _, row := range table.Rows {
			for _, c := range strings.NewReplacer("\x1b[31m", "", plain, "", " ", "").Replace(strings.Join(row, "")) {
				missing[c]++
			}
		}
		for c, n := range missing {
			if found := strings.Count(got, string(c)); found < n {
				r.Errorf("%d times %q, want %d: %q", found, c, n, got)
			}
		}
	})
}

// Wide characters take two columns, and combining ones none.
func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"größe": 5, "e\u0301te\u0301": 3, "小さい": 6, "한국어": 6, "データー": 8, "🚀🚀": 4, "широкий": 7, "ｱｲ": 2,
		"\x1b[31m測\x1b[0m": 2, "": 0} {
		if got := Width(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{{"小さい", 6, "小さい"}, {"小さい", 5, "小さ…"}, {"小さい", 4, "小…"}, {"e\u0301te\u0301s", 3, "e\u0301t…"}, {"ab", 0, "…"}} {
		if got := Cut(c.text, c.columns); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}
