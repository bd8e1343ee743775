// Asks again and again until its input ends: client.js http|grpc PORT PATH BODY
const [protocol, port, path, body] = process.argv.slice(2)
const PAUSE_MS = 50, PATIENCE_MS = 120_000

function askOverHttp() {
  const http = require('http')
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  return () => new Promise((resolve) => {
    const options = { host: '127.0.0.1', port, path, agent, method: 'POST', timeout: PATIENCE_MS }
    const request = http.request(options, (response) => {
      response.resume()
      response.on('end', () => resolve(response.statusCode === 200 ? '' : `${response.statusCode}`))
      response.on('error', (error) => resolve(`${error}`))
    })
    request.on('error', (error) => resolve(`${error}`))
    request.on('timeout', () => request.destroy(new Error('no answer')))
    request.end(body)
  })
}

function askOverGrpc() {
  const grpc = require('@grpc/grpc-js')
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure())
  const same = (bytes) => bytes, data = Buffer.from(body, 'base64')
  return () => new Promise((resolve) => {
    const options = { deadline: Date.now() + PATIENCE_MS }
    client.makeUnaryRequest(path, same, same, data, options, (error) => resolve(error ? `${error}` : ''))
  })
}

async function main() {
  const ask = protocol === 'http' ? askOverHttp() : askOverGrpc()
  let isOver = false
  process.stdin.on('end', () => { isOver = true }).resume()
  while (!isOver) {
    const begun = Number(process.hrtime.bigint()) / 1e9
    const error = await ask()
    const seconds = Number(process.hrtime.bigint()) / 1e9 - begun
    console.log(JSON.stringify({ begun_s: begun, seconds, error }))
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
  }
  process.exit(0)
}

main()
