package lanes_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestTimes measures how long pods with lanes take, one after the other, with and without answers:
// $ISOLANE_KUBE_PODS of each.
func TestTimes(t *testing.T) {
	pods, err := strconv.Atoi(os.Getenv("ISOLANE_KUBE_PODS"))
	if err != nil {
		t.Skip("measures as many pods as ISOLANE_KUBE_PODS says")
	}
	c := share(t)
	for _, answers := range []bool{true, false} {
		c.run(t, fmt.Sprintf("--answer=%t", answers))
		var ready []int
		for i := range pods {
			name, began := fmt.Sprintf("edge-%t-%d", answers, i), time.Now()
			c.lane(t, name, "", "1")
			c.readyWithin(t, name, 2*time.Minute)
			ready = append(ready, int(time.Since(began).Milliseconds()))
			c.delete(t, name)
			c.until(t, "the lane is released", c.noLanes)
		}
		t.Logf("answers %t: applied to Ready, ms: %s", answers, spread(ready))
		for _, what := range []string{"answered", `"in force"`, "attached"} {
			var took []int
			for _, m := range regexp.MustCompile("msg="+what+` .*milliseconds=(\d+)`).FindAllStringSubmatch(c.said(), -1) {
				ms, err := strconv.Atoi(m[1])
				if err != nil {
					t.Fatal(err)
				}
				took = append(took, ms)
			}
			if want := map[bool]int{true: pods}[answers || what != "answered"]; len(took) < want {
				t.Errorf("%d pods were %s, expected %d", len(took), what, want)
			}
			t.Logf("answers %t: %s, ms: %s", answers, what, spread(took))
		}
		c.kill(t)
	}
}

// spread returns the median of figures, the least and the most.
func spread(all []int) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("median %d, %d to %d (%d)", all[len(all)/2], all[0], all[len(all)-1], len(all))
}
