package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"isolane.dev/isolane/hub/api"
)

var phased = flag.Int("phases", 5, "how many Apps come and go, one after another, while their phases are timed")

// phases are the phases of an App on its way to a process in its lane, in order.
func phases() []string {
	return []string{"asked", "reserved", "confirmed", "running on its host", "said of the App"}
}

// TestPhases logs how long it takes from the declaration of an App to a running process, and each phase of
// that, as seen by a client that watches.
func TestPhases(t *testing.T) {
	long(t)
	f := newFleet(t)
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	f.agent(t)
	f.make(t, "apps", "App", "default", "first", spec(1, nil)) // then the hub knows its host
	f.app(t, "default", "first", "Running")
	f.deleteApp(t, "first")
	took := make([][]time.Duration, len(phases()))
	var all []time.Duration
	for n := range *phased {
		name := fmt.Sprint("timed-", n)
		from := time.Now()
		at := f.timed(t, name)
		all = append(all, at[len(at)-1].Sub(from))
		for i, then := range at {
			took[i], from = append(took[i], then.Sub(from)), then
		}
		f.deleteApp(t, name)
	}
	t.Logf("%d Apps, from declared to said to run: %s", *phased, spread(all))
	for i, phase := range phases() {
		t.Logf("  %s: %s later", phase, spread(took[i]))
	}
}

// timed declares an App, and returns when it had been through each phase.
func (f *fleet) timed(t *testing.T, name string) []time.Time {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	watched := func(resource, space, name string) <-chan *unstructured.Unstructured {
		seen := make(chan *unstructured.Unstructured, 100)
		follow(ctx, t, f.resource(resource, space), name, seen)
		return seen
	}
	instances, apps := watched("instances", api.Namespace("one"), "default."+name), watched("apps", "default", name)
	at := make([]time.Time, len(phases()))
	f.make(t, "apps", "App", "default", name, spec(1, nil))
	reach := func(phase int) {
		if at[phase].IsZero() {
			at[phase] = time.Now()
		}
	}
	for at[len(at)-1].IsZero() {
		select {
		case u := <-instances:
			phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
			reserve, _, _ := unstructured.NestedBool(u.Object, "spec", "reserve")
			reach(0)
			if phase == api.Reserved {
				reach(1)
			}
			if !reserve {
				reach(2)
			}
			if !reserve && phase == "Running" {
				reach(3)
			}
		case u := <-apps:
			if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == "Running" {
				reach(4)
			}
		case <-ctx.Done():
			t.Fatalf("App %s: not within a minute: %v", name, at)
		}
	}
	for i := len(at) - 2; i >= 0; i-- { // two watches report in any order
		if at[i].IsZero() || at[i].After(at[i+1]) {
			at[i] = at[i+1]
		}
	}
	return at
}

// follow sends an object each time that it changes, until the context ends.
func follow(ctx context.Context, t *testing.T, all dynamic.ResourceInterface, name string,
	seen chan<- *unstructured.Unstructured) {
	t.Helper()
	w, err := all.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if u, is := event.Object.(*unstructured.Unstructured); is {
				select {
				case seen <- u:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
}

// spread describes a distribution by nearest ranks.
func spread(all []time.Duration) string {
	all = slices.Sorted(slices.Values(all))
	rank := func(percent int) time.Duration { return all[(len(all)*percent+99)/100-1].Round(time.Millisecond) }
	text := fmt.Sprintf("P50 %s, at most %s", rank(50), rank(100))
	if len(all) >= 100 {
		text = fmt.Sprintf("P50 %s, P99 %s, at most %s", rank(50), rank(99), rank(100))
	}
	return text
}
