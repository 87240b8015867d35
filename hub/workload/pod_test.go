package workload

import (
	"net"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/pods"
)

// A cluster that accepts connections and never answers is waited for once, and not for each Instance.
func TestMuteCluster(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, aerr := silent.Accept()
			if aerr != nil {
				return
			}
			defer conn.Close()
			asked <- struct{}{}
		}
	}()
	p := newInstances(t.TempDir())
	p.cluster = &pods.Cluster{Node: "n0", Namespace: "isolane-hub",
		Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://" + silent.Addr().String()})}
	begun, fresh := instance(t, api.InstanceSpec{Workload: api.Workload{Image: "web:1"}}), instance(t, api.InstanceSpec{Workload: api.Workload{Image: "db:1"}})
	fresh.Name = "acme.db"
	if err = os.WriteFile(p.recordFile(begun.Name), begun.Spec, 0o600); err != nil {
		t.Fatal(err)
	}
	if err = p.Ensure(t.Context(), "a", begun); err == nil || err.Error() != errClusterSilent.Error() {
		t.Errorf("what has begun: %v", err)
	}
	if err = p.Ensure(t.Context(), "b", fresh); err == nil || err.Error() != errClusterSilent.Error() {
		t.Errorf("what is to begin: %v", err)
	}
	_ = silent.Close() // Accept says so
	<-over
	if len(asked) != 1 {
		t.Errorf("it was asked %d times", len(asked))
	}
}
