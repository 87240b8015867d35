package drift

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A first change is told at once. What somebody changes each five seconds for an hour is a few texts, and the
// last says how much it was.
func TestNoFlood(t *testing.T) {
	n, now, told := news{}, time.Unix(0, 0), []string{}
	for i := range 720 {
		n.add("edge", fmt.Sprint("irq ", i%200))
		if text, is := n.due(now)["edge"]; is {
			told = append(told, text)
		}
		if i == 0 && (len(told) != 1 || told[0] != "irq 0") {
			t.Fatalf("%q: expected the first at once", told)
		}
		now = now.Add(5 * time.Second)
	}
	if len(told) < 4 || len(told) > 8 || told[1] != "irq 1; irq 2; irq 3; and 9 more" {
		t.Errorf("%d times: %q", len(told), told)
	}
	n.add("", strings.Repeat("x", 3))
	if all := n.due(now); all[""] != "xxx" || len(all) > 1 {
		t.Errorf("%q: another lane waits for nobody", all)
	}
	now = now.Add(time.Hour)
	n.due(now)
	if n.due(now.Add(time.Hour)); len(n) != 0 {
		t.Errorf("%v: expected calm", n)
	}
}
