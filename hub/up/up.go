// Package up starts a hub on one machine: etcd and kube-apiserver as children of this process, with their own
// certificates, and what Isolane adds to the Kubernetes API. There is no scheduler, no kubelet and no
// controller manager.
package up

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options say where a hub is and what it runs.
type Options struct {
	Dir      string // of its store, certificates and logs
	Programs string // folder with etcd and kube-apiserver
	Host     string // address at which sites reach it
	Port     int    // the next two ports belong to the store, on loopback
	Log      *slog.Logger

	Authentication string // file that says how the API server authenticates people; "": by certificates only
	Audit          string // audit policy file; "": no audit
	Shared         bool   // hubs may be invited, through the second port; it stays so once set
}

// Hub is a running hub.
type Hub struct {
	Kubeconfig string // file for an administrator
	Admin      *rest.Config
	Authority  *Authority // of clients and the server

	o        Options
	lock     *os.File
	children *children
}

// URL returns the URL at which sites reach the hub.
func (o Options) URL() string { return "https://" + net.JoinHostPort(o.Host, strconv.Itoa(o.Port)) }

func (o Options) file(name ...string) string {
	return filepath.Join(append([]string{o.Dir}, name...)...)
}

// PKI returns the folder of the certificates.
func (o Options) PKI() string { return o.file("pki") }

// Kubeconfig returns the file with which an administrator reaches the hub.
func (o Options) Kubeconfig() string { return o.file("admin.kubeconfig") }

// Validate checks what people give before anything is made.
func (o Options) Validate() error {
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(o.Programs, program)); err != nil {
			return fmt.Errorf("--programs: expected a folder with etcd and kube-apiserver, as the package "+
				"isolane-hub-programs brings them: %w", err)
		}
	}
	for flag, file := range map[string]string{"authentication": o.Authentication, "audit": o.Audit} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("--%s: expected a file of Kubernetes: %w", flag, err)
		}
	}
	if o.Host == "" {
		return errors.New("--address: this machine has none but loopback's: expected one by which hosts reach it")
	}
	if wrong := validation.IsDNS1123Subdomain(o.Host); net.ParseIP(o.Host) == nil && len(wrong) > 0 {
		return fmt.Errorf("--address %q: expected an address or a name by which hosts reach this machine", o.Host)
	}
	if o.Port < 1 || o.Port > 65533 {
		return fmt.Errorf("--port: expected 1 to 65533, found %d", o.Port)
	}
	return nil
}

// free checks that the ports of the hub are free.
func (o Options) free() error {
	for i, host := range []string{"", "127.0.0.1", "127.0.0.1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(o.Port+i)))
		if err != nil {
			return fmt.Errorf("--port %d: expected it and the next two to be free: %w", o.Port, err)
		}
		if err = l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a hub, and returns when its API answers. It runs until End; the context limits only the wait.
func Start(ctx context.Context, o Options) (*Hub, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.file("log")); errors.Is(err, fs.ErrNotExist) { // no hub of this folder has the ports
		if err = o.free(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.file("log"), 0o700); err != nil {
		return nil, fmt.Errorf("--dir %s: expected a folder that can be made: %w", o.Dir, err)
	}
	lock, err := os.Create(o.file("lock"))
	if err != nil {
		return nil, fmt.Errorf("--dir: expected a folder that can be written: %w", err)
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("--dir %s: another hub has it: %w", o.Dir, err), lock.Close())
	}
	h := &Hub{o: o, lock: lock, Kubeconfig: o.Kubeconfig(), children: newChildren(o)}
	if err = endLeft(ctx, o.file("log")); err == nil {
		err = h.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, h.End())
	}
	return h, nil
}

func (h *Hub) start(ctx context.Context) error {
	if err := h.o.free(); err != nil {
		return err
	}
	if err := os.MkdirAll(h.o.PKI(), 0o700); err != nil {
		return err
	}
	if err := h.o.share(); err != nil {
		return err
	}
	if err := h.startStore(); err != nil {
		return err
	}
	if err := h.startAPI(); err != nil {
		return err
	}
	return h.ready(ctx)
}

// startStore starts etcd, which only the API server may reach, with certificates of an authority of its own.
func (h *Hub) startStore() error {
	a, err := ensureAuthority(h.o.PKI(), "store")
	if err != nil {
		return err
	}
	server, err := a.issue(h.o.PKI(), "etcd", pkix.Name{CommonName: "etcd"}, "127.0.0.1", h.o.Host)
	if err != nil {
		return err
	}
	peers, err := h.o.peers()
	if err != nil {
		return err
	}
	url, ca := fmt.Sprintf("https://127.0.0.1:%d", h.o.Port+1), h.o.file("pki", "store.crt")
	return h.children.keep(h.o.file("log", "etcd.log"), filepath.Join(h.o.Programs, "etcd"), append(peers,
		"--data-dir="+h.o.file("store"), "--log-level=warn",
		// The largest size that etcd advises: the reports of 10,000 hosts take 700 MB, and those of the last
		// minutes are also kept.
		"--quota-backend-bytes=8589934592",
		"--backend-batch-interval=1s", // what was written is in the log before that
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--cert-file="+server.cert, "--key-file="+server.key, "--client-cert-auth", "--trusted-ca-file="+ca,
		"--peer-cert-file="+server.cert, "--peer-key-file="+server.key, "--peer-client-cert-auth",
		"--peer-trusted-ca-file="+ca, "--auto-compaction-mode=periodic", "--auto-compaction-retention=1h")...)
}

// startAPI starts kube-apiserver, and writes the file with which an administrator reaches it.
func (h *Hub) startAPI() error {
	dir := h.o.PKI()
	a, err := ensureAuthority(dir, "hub")
	if err != nil {
		return err
	}
	store, err := LoadAuthority(dir, "store")
	if err != nil {
		return err
	}
	if _, err = ensureAuthority(dir, "accounts"); err != nil { // its key signs tokens of service accounts
		return err
	}
	h.Authority = a
	client, err := store.issue(dir, "store-client", pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return err
	}
	server, err := a.issue(dir, "server", pkix.Name{CommonName: "isolane-hub"}, h.o.Host, "127.0.0.1",
		"localhost", "kubernetes.default.svc", "10.0.0.1")
	if err != nil {
		return err
	}
	admin, err := a.issue(dir, "admin", pkix.Name{CommonName: "isolane-hub",
		Organization: []string{"system:masters"}})
	if err == nil {
		err = h.writeKubeconfig(admin)
	}
	if err != nil {
		return err
	}
	program := filepath.Join(h.o.Programs, "kube-apiserver")
	log := h.o.file("log", "kube-apiserver.log")
	return h.children.keep(log, program, slices.Concat(h.access(), withoutPods(), atOnce(), []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", h.o.Port+1),
		"--etcd-cafile=" + h.o.file("pki", "store.crt"),
		"--etcd-certfile=" + client.cert, "--etcd-keyfile=" + client.key,
		fmt.Sprintf("--secure-port=%d", h.o.Port), "--bind-address=" + h.o.everywhere(),
		"--tls-cert-file=" + server.cert, "--tls-private-key-file=" + server.key,
		"--client-ca-file=" + h.o.file("pki", "hub.crt"),
		"--cert-dir=" + h.o.file("pki"), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--enable-bootstrap-token-auth", "--service-account-issuer=" + h.o.URL(),
		"--service-account-key-file=" + h.o.file("pki", "accounts.crt"),
		"--service-account-signing-key-file=" + h.o.file("pki", "accounts.key"),
		"--enable-garbage-collector=false", // a delete would wait for a collector that does not exist
		"--service-cluster-ip-range=10.0.0.0/24", "--profiling=false",
		"--watch-cache=false", // hosts watch only their own namespaces, and the cache would hold all reports again
	})...)
}

// withoutPods returns flags for an API server without pods and what they need: each kind has a cache. The
// advertise address is for pods only; without the flag, the server needs a default route.
func withoutPods() []string {
	const unused = "apps/v1=false,autoscaling/v1=false,autoscaling/v2=false,batch/v1=false," +
		"node.k8s.io/v1=false,policy/v1=false,resource.k8s.io/v1=false,scheduling.k8s.io/v1=false," +
		"storage.k8s.io/v1=false,storagemigration.k8s.io/v1=false"
	return []string{"--runtime-config=" + unused, "--disable-admission-plugins=ServiceAccount,Priority," +
		"RuntimeClass,DefaultStorageClass,DefaultIngressClass,PersistentVolumeClaimResize,PodSecurity,LimitRanger",
		"--endpoint-reconciler-type=none", "--advertise-address=10.0.0.1",
		"--etcd-count-metric-poll-period=0", "--etcd-db-metric-poll-interval=0"}
}

// atOnce returns flags that limit how many requests the API server works on at a time: each needs memory for
// the report that it reads or writes, and many hosts come at once after a hub was away. The others wait. With
// fewer, hosts were refused where others used the CPUs (docs/measurements.md, "A hub of 1,000 hosts").
func atOnce() []string {
	cpus := max(2, runtime.NumCPU())
	return []string{fmt.Sprintf("--max-requests-inflight=%d", 60*cpus),
		fmt.Sprintf("--max-mutating-requests-inflight=%d", 30*cpus)}
}

// everywhere returns the address that stands for all of this machine, IPv6 or IPv4 as the hub's is.
func (o Options) everywhere() string {
	if ip := net.ParseIP(o.Host); ip != nil && ip.To4() == nil {
		return "::"
	}
	return "0.0.0.0"
}

// access returns the API server's flags for authentication and audit.
func (h *Hub) access() (flags []string) {
	if h.o.Authentication != "" {
		flags = append(flags, "--authentication-config="+h.o.Authentication)
	}
	if h.o.Audit != "" {
		flags = append(flags, "--audit-policy-file="+h.o.Audit, "--audit-log-path="+h.o.file("log", "audit.log"),
			"--audit-log-maxsize=100", "--audit-log-maxbackup=5") // MB, and files
	}
	return flags
}

// writeKubeconfig writes a file with everything that an administrator needs.
func (h *Hub) writeKubeconfig(admin pair) error {
	c := clientcmdapi.NewConfig()
	cert, err := os.ReadFile(admin.cert)
	key, kerr := os.ReadFile(admin.key)
	ca, cerr := os.ReadFile(h.o.file("pki", "hub.crt"))
	if err = errors.Join(err, kerr, cerr); err != nil {
		return err
	}
	c.Clusters["hub"] = &clientcmdapi.Cluster{Server: h.o.URL(), CertificateAuthorityData: ca}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "admin"}
	c.CurrentContext = "hub"
	return clientcmd.WriteToFile(*c, h.Kubeconfig)
}

// ready waits until the API answers, for three minutes at most; if there are other hubs, until enough of them
// run. It gives up on a program that keeps ending.
func (h *Hub) ready(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1 // the server limits
	h.Admin = config
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	m, err := h.o.cluster()
	if err != nil {
		return err
	}
	if m == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
	}
	ended := map[string]int{}
	for {
		_, err = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("--address %s: the API server does not answer there: %w; it said: %s", h.o.Host, err,
				lastWord(h.o.file("log", "kube-apiserver.log"), 0))
		case e := <-h.children.endings:
			ended[e.program]++
			if err = h.o.giveUp(e, ended[e.program], m != nil); err != nil {
				return err
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// End ends all programs of the hub.
func (h *Hub) End() error {
	h.children.close()
	return h.lock.Close()
}
