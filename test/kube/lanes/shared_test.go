package lanes_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/bed/bedtest"
	"isolane.dev/isolane/test/kube/image"
)

// shared is the bed of tests that need no special one: each finds it without pods and claims, and runs its own
// node part. It begins with the first of them and ends when one fails, before a test with a bed of its own (a
// machine of the lab can only have one) and after the last test.
var shared struct {
	*bed.Bed
	host []byte // before it began
}

// share takes the shared bed, and compares the host when the test has ended.
func share(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{programs: need(t), log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		if !t.Failed() || shared.Bed == nil {
			return
		}
		t.Log("the logs of the bed are in ", shared.KeepLogs())
		if err := endShared(); err != nil {
			t.Error(err)
		}
	})
	if shared.Bed == nil {
		before, err := fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		shared.host = before
		shared.Bed = bedtest.Begin(t, bed.Options{Program: filepath.Join(c.programs, "kubebed"), Images: []image.Image{c.spinning()}})
		c.Bed = shared.Bed
		c.install(t)
	} else {
		c.Bed = shared.Bed
		c.clear(t)
	}
	c.sameHost(t)
	c.use(t)
	return c
}

// clear removes what a test has left in the cluster. Its node part has gone, and so must its offer.
func (c *cluster) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patient(time.Minute))
	defer cancel()
	if err := c.Nodes[0].WaitReady(ctx); err != nil { // it may have killed the kubelet
		t.Fatal(err)
	}
	c.kubectl(t, "", "delete", "pods,resourceclaims,resourceclaimtemplates,resourceslices", "--all", "--wait")
}

// endShared ends the shared bed, if there is one. It returns an error if the host is not as it was before.
func endShared() error {
	b := shared.Bed
	if b == nil {
		return nil
	}
	shared.Bed = nil
	return errors.Join(b.Close(), changedSince(shared.host))
}
